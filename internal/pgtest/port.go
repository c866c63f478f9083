package pgtest

import (
	"fmt"
	"net"
)

// freePort gives a TCP port of the loopback interface that was free a moment
// ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("pgtest: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
