package main

import "github.com/spf13/cobra"

// newFilter is the parent of the commands about the filter for Open WebUI.
func newFilter() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "filter",
		Short: "make the filter for Open WebUI, which puts every parameter on its pages",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newFilterExport(), newFilterCheck(), newFilterInstall(), newFilterUninstall())
	return cmd
}
