package main

import "github.com/spf13/cobra"

// newEntropy is the parent of the commands about entropy sources.
func newEntropy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "entropy",
		Short: "serve and examine entropy sources",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEntropyServe(), newEntropyTest())
	return cmd
}
