//go:build !unix

package pgtest

import (
	"context"
	"runtime"
)

// cluster is a server of our own; on this system there is none.
type cluster struct{}

func (sys system) startCluster(_ context.Context, opt Options) (*cluster, error) {
	return nil, noServer(opt.Private, []string{"an installed PostgreSQL: not supported on " + runtime.GOOS})
}

func (*cluster) tcpDSN() string               { return "" }
func (*cluster) socketDSN() string            { return "" }
func (*cluster) logFile() string              { return "" }
func (*cluster) launch(context.Context) error { return nil }
func (*cluster) stop() error                  { return nil }
func (*cluster) close() error                 { return nil }
