package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Command runs a program until it ends or is interrupted, and ends the process
// if it failed.
func Command(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C does not wait for the cleaning up.
	context.AfterFunc(ctx, stop)

	err := run(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil && !errors.Is(err, ErrLeftBehind):
		fmt.Fprintf(os.Stderr, "%s: interrupted, nothing is left behind\n", name)
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
