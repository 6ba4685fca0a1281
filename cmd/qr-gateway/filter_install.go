package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"qr-gateway/backends"
	"qr-gateway/filters/openwebui"
	"qr-gateway/filters/openwebui/admin"
)

// webui is what the command line says of the Open WebUI to work on.
type webui struct {
	options         admin.Options
	email, password string
	dry             bool
}

func (w *webui) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.options.URL, "url", "", "`ADDRESS` of Open WebUI's page, e.g. http://127.0.0.1:3000")
	f.StringVar(&w.options.Token, "token", "", "`TOKEN` or API key of an administrator (default: the environment's OPENWEBUI_TOKEN)")
	f.StringVar(&w.email, "email", "", "sign in as this administrator instead")
	f.StringVar(&w.password, "password", "", "with this password (default: the environment's OPENWEBUI_PASSWORD)")
	f.DurationVar(&w.options.Timeout, "timeout", 30*time.Second, "`TIME` to wait for each answer")
	f.BoolVar(&w.dry, "dry-run", false, "only say what would be done")
	_ = cmd.MarkFlagRequired("url") // the flag is there
	cmd.MarkFlagsMutuallyExclusive("token", "email")
}

// connect finds Open WebUI and makes sure that whoever asks is an administrator.
func (w *webui) connect(ctx context.Context, out io.Writer) (*admin.Client, error) {
	if w.email == "" {
		w.options.Token = cmp.Or(w.options.Token, os.Getenv("OPENWEBUI_TOKEN"))
	}
	if w.options.Timeout <= 0 {
		return nil, &admin.Error{Message: "--timeout must be more than 0", Hint: "leave it out for 30s"}
	}
	c, err := admin.New(w.options)
	if err != nil {
		return nil, err
	}
	version, err := c.Version(ctx)
	if err == nil {
		err = w.signIn(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	account, err := c.Account(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Open WebUI %s at %s, as %s\n", version, c.URL(), account.Name)
	return c, nil
}

// signIn does so where there is a name, or where Open WebUI runs without accounts.
func (w *webui) signIn(ctx context.Context, c *admin.Client) error {
	if w.email != "" {
		return c.SignIn(ctx, w.email, cmp.Or(w.password, os.Getenv("OPENWEBUI_PASSWORD")))
	}
	if w.options.Token != "" {
		return nil
	}
	accounts, err := c.Accounts(ctx)
	switch {
	case err != nil:
		return err
	case accounts:
		return &admin.Error{
			Message: "no token is given for Open WebUI at " + c.URL(),
			Hint:    "set OPENWEBUI_TOKEN or use --token, or sign in with --email and --password",
		}
	}
	return c.SignIn(ctx, "", "")
}

// filterInstall is what the command line of `filter install` says.
type filterInstall struct {
	webui
	valves []string
	in     admin.Installation
}

const filterInstallExample = `  OPENWEBUI_TOKEN=... qr-gateway filter install --url http://127.0.0.1:3000
  qr-gateway filter install --url http://127.0.0.1:3000 --email me@example.org --password ... --valve qr_decoder=lookahead --valve qr_alpha=0.3
  qr-gateway filter install --url http://127.0.0.1:3000 --models --public --controls
  qr-gateway filter install --url http://127.0.0.1:3000 --valve qr_alpha= --dry-run`

func newFilterInstall() *cobra.Command {
	o := filterInstall{}
	cmd := &cobra.Command{
		Use:   "install --url ADDRESS [--token TOKEN]",
		Short: "put the filter into an Open WebUI, or bring it up to date",
		Long: "install creates or updates the filter in Open WebUI, switches it on for all models, and sets valves. Valves that were set before stay\n" +
			"unless they are named. With --models it also writes the cards of the gateway's models as the gateway describes them; what somebody\n" +
			"wrote on a card by hand stays. A second run changes nothing, or does what a first one was kept from.",
		Example: filterInstallExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&o.valves, "valve", nil, "set a valve, `KEY=VALUE`; may be repeated, and KEY= takes one away")
	f.BoolVar(&o.in.ResetValves, "reset-valves", false, "forget all valves that were set before")
	f.BoolVar(&o.in.Models, "models", false, "write the cards of the gateway's models")
	f.BoolVar(&o.in.Cards.Public, "public", false, "with --models: let all users use them")
	f.BoolVar(&o.in.Cards.Controls, "controls", false, "with --models: put a slider for looking ahead on the chat page, where Open WebUI has sliders")
	f.BoolVar(&o.in.Cards.Force, "force", false, "with --models: replace what was written on cards by hand")
	return cmd
}

func (o *filterInstall) run(ctx context.Context, out io.Writer) error {
	if err := o.prepare(); err != nil {
		return hinted(err)
	}
	c, err := o.connect(ctx, out)
	if err != nil {
		return hinted(err)
	}
	defer c.Close()
	report, err := c.Install(ctx, &o.in)
	return hinted(errors.Join(writeReport(out, report, o.dry), err))
}

// prepare finds all that is wrong with the command line before anything is sent.
func (o *filterInstall) prepare() (err error) {
	if c := o.in.Cards; !o.in.Models && (c.Public || c.Controls || c.Force) {
		return &admin.Error{Message: "--public, --controls and --force are about cards of models", Hint: "add --models"}
	}
	if o.in.Valves, err = admin.ParseValves(o.valves); err != nil {
		return err
	}
	files, err := openwebui.Export()
	if err != nil {
		return err
	}
	o.in.DryRun = o.dry
	o.in.Function, err = admin.ParseFunction(files.JSON)
	return err
}

func newFilterUninstall() *cobra.Command {
	o := webui{}
	cmd := &cobra.Command{
		Use:   "uninstall --url ADDRESS [--token TOKEN]",
		Short: "take the filter out of an Open WebUI, and what was written on cards of models",
		Long: "uninstall removes the filter with its valves, and of the cards of models what install wrote there. What users set for themselves\n" +
			"stays among their settings, where nothing reads it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.connect(cmd.Context(), cmd.OutOrStdout())
			if err != nil {
				return hinted(err)
			}
			defer c.Close()
			report, err := c.Uninstall(cmd.Context(), openwebui.ID, o.dry)
			return hinted(errors.Join(writeReport(cmd.OutOrStdout(), report, o.dry), err))
		},
	}
	o.flags(cmd)
	return cmd
}

// writeReport says what was done, a line for each thing.
func writeReport(w io.Writer, report admin.Report, dry bool) error {
	var errs []error
	if dry {
		_, err := fmt.Fprintln(w, "dry run: nothing is written; a real one would say:")
		errs = append(errs, err)
	}
	for _, s := range report {
		said := cmp.Or(strings.Join(s.Did, ", "), s.Note, "unchanged")
		if len(s.Kept) > 0 {
			said += "; kept as changed by hand: " + strings.Join(s.Kept, ", ")
		}
		_, err := fmt.Fprintf(w, "%s: %s\n", s.Thing, said)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hinted makes of an error of the installer the one that carries a hint here.
func hinted(err error) error {
	var e *admin.Error
	if errors.As(err, &e) {
		return &backends.Error{Message: e.Message, Hint: e.Hint, Err: err}
	}
	return err
}
