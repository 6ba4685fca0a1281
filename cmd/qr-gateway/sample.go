package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"qr-gateway/configs/presets"
	"qr-gateway/sampler"
	"qr-gateway/sampler/jsonlines"
)

func newSample() *cobra.Command {
	var params *paramFlags
	cmd := &cobra.Command{
		Use:   "sample [FILE]",
		Short: "choose tokens from logits, line by line, without a model",
		Long: "sample reads lines of JSON, each with logits and what the number is made of (bytes in hexadecimal, or u), from FILE or standard\n" +
			"input, and answers each with a line: the token and everything that decided it. Lines of one stream go on from each other.\n" +
			"Flags that name a parameter hold for lines that don't set it. A line that can't be done is answered with its error; the status is\n" +
			"then 1.",
		Example: "  echo '{\"logits\": [2, 1, 0, -1, -2], \"u\": 0.9, \"params\": {\"qr_temperature_strategy\": \"edt\"}}' | qr-gateway sample",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			base := sampler.Defaults()
			if err := params.apply(&base); err != nil {
				return err
			}
			in, err := input(cmd, args)
			if err != nil {
				return err
			}
			defer in.Close()
			library, err := presets.BuiltIn()
			if err != nil {
				return err
			}
			sum, err := jsonlines.Run(base, library, in, cmd.OutOrStdout())
			if err == nil && sum.Failed > 0 {
				err = fmt.Errorf("%d of %d lines failed; each is answered with its error", sum.Failed, sum.Lines)
			}
			return err
		},
	}
	params = addParamFlags(cmd.Flags())
	return cmd
}

// input is the file that was named, or standard input.
func input(cmd *cobra.Command, args []string) (io.ReadCloser, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, fmt.Errorf("open lines: %w", err)
	}
	return f, nil
}
