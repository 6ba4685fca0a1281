package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"qr-gateway/backends"
	"qr-gateway/filters/openwebui"
)

func newFilterExport() *cobra.Command {
	var dir, form string
	cmd := &cobra.Command{
		Use:   "export [--dir DIR | --stdout json|py]",
		Short: "write the filter as Open WebUI imports it, and as code",
		Long: "export writes " + openwebui.ID + ".json, which Open WebUI imports (Admin Panel > Functions > Import JSON), and\n" +
			openwebui.ID + ".py, the same as code. Every parameter of a request is a valve in it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			files, err := openwebui.Export()
			if err != nil {
				return filterError(err)
			}
			switch form {
			case "":
				return writeFilter(cmd, dir, files)
			case "json":
				_, err = cmd.OutOrStdout().Write(files.JSON)
			case "py":
				_, err = cmd.OutOrStdout().Write(files.Python)
			default:
				return fmt.Errorf("--stdout is %q; it takes json or py", form)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "write both files into `DIR`")
	cmd.Flags().StringVar(&form, "stdout", "", "print one instead: `FORM` json or py")
	cmd.MarkFlagsMutuallyExclusive("dir", "stdout")
	return cmd
}

func writeFilter(cmd *cobra.Command, dir string, files openwebui.Files) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write filter: %w", err)
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{openwebui.ID + ".json", files.JSON}, {openwebui.ID + ".py", files.Python}} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.text, 0o644); err != nil {
			return fmt.Errorf("write filter: %w", err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), path)
	}
	return nil
}

func newFilterCheck() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE.json",
		Short: "say whether a file is the filter that this version exports, and what Open WebUI would not take",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("check filter: %w", err)
			}
			if err := openwebui.Check(data); err != nil {
				return filterError(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is the filter of this version\n", args[0])
			return err
		},
	}
}

// filterError gives an error about a filter the form that is printed with its hint.
func filterError(err error) error {
	var e *openwebui.Error
	if !errors.As(err, &e) {
		return err
	}
	return &backends.Error{Kind: backends.KindInvalid, Message: e.Message, Hint: e.Hint, Err: err}
}
