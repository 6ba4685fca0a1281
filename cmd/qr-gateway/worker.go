package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"qr-gateway/backends"
	"qr-gateway/gateway/config"
	"qr-gateway/gateway/queue/redis"
)

func newWorker() *cobra.Command {
	cmd := withConfig("worker", "run the models of a configuration for gateways on other machines, which share a queue (redis.url)", func(cmd *cobra.Command, cfg config.Config) error {
		return runRole(cmd.Context(), cfg, role{name: redis.RoleWorker, work: true}, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cmd.AddCommand(newDrain())
	return cmd
}

// newDrain makes the command that has a worker end in order.
func newDrain() *cobra.Command {
	var name string
	cmd := withConfig("drain", "ask a worker to finish what it runs, to take nothing more, and to end", func(cmd *cobra.Command, cfg config.Config) error {
		q, err := openShared(cmd.Context(), cfg, nil)
		if err != nil {
			return err
		}
		err = q.Drain(cmd.Context(), name)
		if errors.Is(err, redis.ErrNoMember) {
			err = &backends.Error{Message: fmt.Sprintf("no worker %q takes part in this queue", name), Hint: "qr-gateway status lists those that do", Err: err}
		}
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "worker %s is asked to drain\n", name)
		}
		return errors.Join(err, q.Close())
	})
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the worker, as qr-gateway status shows it")
	_ = cmd.MarkFlagRequired("name") // the flag is there
	return cmd
}

func newStatus() *cobra.Command {
	return withConfig("status", "show who takes part in a shared queue (redis.url), and what waits in it", func(cmd *cobra.Command, cfg config.Config) error {
		q, err := openShared(cmd.Context(), cfg, nil)
		if err != nil {
			return err
		}
		return errors.Join(writeStatus(cmd.Context(), cmd.OutOrStdout(), q, time.Now()), q.Close())
	})
}

// writeStatus shows members and models as tables.
func writeStatus(ctx context.Context, out io.Writer, q *redis.Queue, now time.Time) error {
	all, err := q.Members(ctx)
	if err != nil {
		return err
	}
	stats, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROLE\tNAME\tVERSION\tUP\tADDRESS\tMODELS")
	for _, m := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Role, m.Name, m.Version, now.Sub(m.Started).Truncate(time.Second), dash(m.Address), dash(modelsOf(m)))
	}
	fmt.Fprintln(w, "\nMODEL\tWAITING\tTOKENS\tOLDEST\tRUNNING")
	for _, id := range slices.Sorted(maps.Keys(stats.Models)) {
		s := stats.Models[id]
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\n", id, s.Waiting, s.WaitingTokens, s.Oldest.Truncate(time.Millisecond), s.Running)
	}
	fmt.Fprintf(w, "\nsince the queue began: %d submitted, %d done, %d failed, %d cancelled, %d expired, %d refused; %d leases lost, %d queued again, %d late writes refused\n",
		stats.Submitted, stats.Done, stats.Failed, stats.Cancelled, stats.Expired, stats.Refused, stats.LeasesLost, stats.Requeued, stats.Fenced)
	return w.Flush()
}

func modelsOf(m redis.Member) string {
	var out []string
	for _, one := range m.Models {
		out = append(out, fmt.Sprintf("%s %d/%d %s", one.ID, one.Busy, one.Workers, one.State))
	}
	return strings.Join(out, ", ")
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
