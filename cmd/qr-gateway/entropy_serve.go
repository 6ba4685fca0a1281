package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"qr-gateway/entropy"
	"qr-gateway/entropy/catalog"
	entropygrpc "qr-gateway/entropy/grpc"
	"qr-gateway/entropy/guard"
	entropyserver "qr-gateway/entropy/server"
	"qr-gateway/gateway/observe"
)

// entropyServe is what the command line of `entropy serve` says, where it is not the server's own.
type entropyServe struct {
	source string
	mode   string
	faults []string
	server entropyserver.Config
}

const entropyServeExample = `  qr-gateway entropy serve --source system --listen unix:///run/qr-entropy/entropy.sock
  qr-gateway entropy serve --source timing --listen localhost:50051
  qr-gateway entropy serve --source device,path=/dev/qrng0 --listen 0.0.0.0:50051 --api-key-file keys --tls-cert cert.pem --tls-key key.pem
  qr-gateway entropy serve --source system --listen localhost:50051 --fault short:1@0.01 --fault delay:20ms@0.1`

func newEntropyServe() *cobra.Command {
	o := entropyServe{server: entropyserver.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "serve --source TYPE[,key=value...] --listen ADDRESS",
		Short: "hand out the bytes of one source over gRPC",
		Long: "serve owns one entropy source and hands its bytes out over gRPC, by the published protocol (qr_entropy.EntropyService, and\n" +
			"qr_purity.PurityService for numbers), to this and other programs. See docs/entropy-server.md.",
		Example: entropyServeExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *entropyServe) flags(cmd *cobra.Command) {
	f, c := cmd.Flags(), &o.server
	f.StringVar(&o.source, "source", "system", "source: `TYPE[,key=value...]`")
	f.StringArrayVar(&c.Listen, "listen", nil, "`ADDRESS` to listen on: host:port, [IPv6]:port, unix:///path or unix-abstract:name; may be repeated")
	f.StringVar(&o.mode, "mode", "0660", "permissions of Unix sockets, octal")
	f.StringVar(&c.APIKeyFile, "api-key-file", "", "`FILE` with one API key per line; callers must show one")
	f.StringVar(&c.APIKeyHeader, "api-key-header", c.APIKeyHeader, "metadata `NAME` of the API key")
	f.BoolVar(&c.AllowPublic, "allow-public", false, "listen beyond this machine without a key or client certificates")
	f.StringVar(&c.TLSCert, "tls-cert", "", "PEM `FILE` of the certificate")
	f.StringVar(&c.TLSKey, "tls-key", "", "PEM `FILE` of its key")
	f.StringVar(&c.TLSClientCA, "tls-client-ca", "", "PEM `FILE`: callers must show a certificate signed by one of these")
	f.IntVar(&c.MaxBytes, "max-bytes", c.MaxBytes, "limit of one request, `BYTES`")
	f.IntVar(&c.NumberBytes, "number-bytes", c.NumberBytes, "`BYTES` integrated for a number when the request names no size")
	f.StringVar(&c.SourceID, "source-id", "", "`NAME` that numbers carry (default: the source's)")
	f.StringVar(&c.Device, "device", "", "device id of replies (default: what the source says)")
	f.BoolVar(&c.Reflection, "reflection", false, "tell callers the protocol")
	f.DurationVar(&c.Grace, "grace", c.Grace, "time for requests under way when it is to stop")
	f.StringArrayVar(&o.faults, "fault", nil, "for tests, something to do wrong: `KIND[:ARGUMENT][@WHEN]`; may be repeated. Kinds: delay, jitter, short, long, empty, stale, "+
		"duplicate, wrong-echo, silent, code, close; WHEN is a probability, /N or +N")
}

func (o *entropyServe) run(ctx context.Context, stdout, stderr io.Writer) error {
	log, err := observe.NewLog(observe.LogConfig{Level: "info", Format: "text"}, stderr)
	if err != nil {
		return err
	}
	if err := o.parse(); err != nil {
		return err
	}
	src, err := openServed(ctx, o.source, log)
	if err != nil {
		return err
	}
	s, err := entropyserver.New(o.server, entropyserver.Deps{Source: src, Log: log})
	if err != nil {
		return errors.Join(err, src.Close())
	}
	for _, a := range s.Addrs() {
		fmt.Fprintf(stdout, "listening on %s\n", a)
	}
	notifyReady(ctx, log)
	return s.Run(ctx)
}

func (o *entropyServe) parse() error {
	mode, err := strconv.ParseUint(o.mode, 8, 32)
	if err != nil {
		return fmt.Errorf("--mode %q: must be octal permissions such as 0660", o.mode)
	}
	o.server.SocketMode = fs.FileMode(mode)
	for _, text := range o.faults {
		f, err := entropyserver.ParseFault(text)
		if err != nil {
			return fmt.Errorf("--fault: %w", err)
		}
		o.server.Faults = append(o.server.Faults, f)
	}
	return o.server.Validate()
}

// ownedSource is a source with the catalog's set that it lives in.
type ownedSource struct {
	entropy.Source
	set *catalog.Set
}

// Close implements io.Closer.
func (s ownedSource) Close() error { return s.set.Close() }

// openServed opens the source of a flag. The protocol can't say that bytes came from a second choice, so there is none, nor what was found
// about them.
func openServed(ctx context.Context, text string, log *slog.Logger) (ownedSource, error) {
	spec, err := parseSource(text)
	if err != nil {
		return ownedSource{}, err
	}
	if spec.Policy == "fallback" || spec.Type == "fallback" {
		return ownedSource{}, fmt.Errorf("--source %q: a server can't tell its callers that bytes came from a second choice; set the policy where they are used", text)
	}
	if spec.Policy == string(guard.Observe) {
		return ownedSource{}, fmt.Errorf("--source %q: a server can't tell its callers what was found about the bytes; set policy=observe where they are used, and here health=false to hand them out untested", text)
	}
	set, err := catalog.Open(ctx, []catalog.Spec{spec}, catalog.Deps{Requests: entropygrpc.NewLogObserver(log, nil)})
	if err != nil {
		return ownedSource{}, err
	}
	src, err := set.Get(spec.Name)
	if err != nil {
		return ownedSource{}, errors.Join(err, set.Close())
	}
	return ownedSource{src, set}, nil
}

// notifyReady tells systemd, if that started us, that callers may come.
func notifyReady(ctx context.Context, log *slog.Logger) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	c, err := new(net.Dialer).DialContext(ctx, "unixgram", path)
	if err == nil {
		_, err = c.Write([]byte("READY=1"))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		log.Warn("tell systemd that we are ready", "err", err)
	}
}
