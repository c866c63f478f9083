//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// guardian is a shell that outlives us by a moment. It reads a pipe that only
// we hold open; when that closes, because we released it or because we died
// in whatever way, it ends the server and removes the directory. Server and
// initdb are in its process group, so it needs to be told no pids.
type guardian struct {
	cmd  *exec.Cmd
	pipe *os.File // closed by release, or by the kernel when we die
}

// guardianScript has the directory as $1. SIGQUIT is an immediate shutdown:
// the data is about to be removed. The server removes its pid file as the last
// thing it does.
const guardianScript = `
trap '' HUP INT QUIT TERM
while read -r _; do :; done
kill -QUIT 0
pid=$1/data/postmaster.pid
i=0
while [ -e "$pid" ] && [ $i -lt 100 ]; do
	sleep 0.1 2>/dev/null || sleep 1
	i=$((i + 1))
done
if read -r postmaster <"$pid"; then kill -KILL "$postmaster"; fi 2>/dev/null
for _ in 1 2 3; do
	rm -rf "$1" && break
	sleep 1
done
`

func startGuardian(dir string) (*guardian, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", guardianScript, "pgtest-guardian", dir)
	cmd.Stdin = read
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		write.Close()
		return nil, fmt.Errorf("pgtest: /bin/sh: %w", err)
	}
	return &guardian{cmd: cmd, pipe: write}, nil
}

// pid is also the number of the guardian's process group.
func (g *guardian) pid() int { return g.cmd.Process.Pid }

// release has the guardian do its work, and waits for it.
func (g *guardian) release() {
	g.pipe.Close()
	g.cmd.Wait() // what it could not remove, the caller sees
}
