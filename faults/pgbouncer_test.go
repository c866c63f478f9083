package faults

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/coalesce-pgx/coalesce"
	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

// bouncer is a pgbouncer in transaction mode before the server of a world.
type bouncer struct {
	world   *world
	path    string
	version [2]int
	config  string // path of its configuration
	addr    string
	stdin   interface{ Close() error } // it ends when this does, or we do
	cmd     *exec.Cmd
}

// bouncerPool is how many server connections it has for everybody.
const bouncerPool = 3

// startBouncer starts one and leads the proxy to it.
func startBouncer(t *testing.T, w *world) *bouncer {
	t.Helper()
	b := &bouncer{world: w}
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			b.path = path
		}
	}
	if b.path == "" {
		t.Fatal("there is no pgbouncer; to install one: apt-get update && apt-get install -y pgbouncer")
	}
	out, err := exec.Command(b.path, "--version").Output()
	must(t, err)
	m := regexp.MustCompile(`PgBouncer (\d+)\.(\d+)`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s --version: %s", b.path, out)
	}
	b.version[0], _ = strconv.Atoi(string(m[1]))
	b.version[1], _ = strconv.Atoi(string(m[2]))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b.addr = ln.Addr().String()
	must(t, ln.Close())
	_, port, _ := net.SplitHostPort(b.addr)
	host, serverPort, _ := net.SplitHostPort(w.addr)
	settings := []string{
		"[databases]",
		fmt.Sprintf("postgres = host=%s port=%s user=app password=%s", host, serverPort, password),
		fmt.Sprintf("alias = host=%s port=%s user=app password=%s dbname=postgres", host, serverPort, password),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + port,
		"unix_socket_dir =",
		"auth_type = any", // the server is asked for the password
		"admin_users = app",
		"pool_mode = transaction",
		fmt.Sprintf("default_pool_size = %d", bouncerPool),
		"server_login_retry = 1",
	}
	if b.prepares() {
		settings = append(settings, "max_prepared_statements = 100")
	}
	b.config = w.dataFile(t, "pgbouncer.ini", strings.Join(settings, "\n")+"\n")
	b.start(t)
	t.Cleanup(b.stop)
	w.proxy.leadTo(b.addr)
	w.pooled = true
	return b
}

// prepares reports whether it keeps track of prepared statements.
func (b *bouncer) prepares() bool { return b.version[0] > 1 || b.version[1] >= 21 }

func (b *bouncer) start(t *testing.T) {
	t.Helper()
	// It has no wish to run as root, and would outlive us.
	b.cmd = exec.Command("/bin/sh", "-c", `"$@" & read -r _; kill -KILL $!; wait`, "sh", b.path, "-q", b.config)
	b.cmd.Dir = "/"
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if info, err := os.Stat(filepath.Dir(b.config)); err == nil && os.Geteuid() == 0 {
		owner := info.Sys().(*syscall.Stat_t)
		b.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	defer log.Close()
	b.cmd.Stdout, b.cmd.Stderr = log, log
	stdin, err := b.cmd.StdinPipe()
	must(t, err)
	b.stdin = stdin
	must(t, b.cmd.Start())
	dsn := strings.Replace(b.world.dsn(), b.world.proxy.addr, b.addr, 1)
	untilSays(t, func() bool {
		c, err := pgx.Connect(bg, dsn)
		if err != nil {
			return false
		}
		c.Close(bg)
		return true
	}, func() string {
		b, _ := os.ReadFile(log.Name())
		return "pgbouncer takes connections; it says: " + string(b)
	})
}

// stop kills it.
func (b *bouncer) stop() {
	b.stdin.Close()
	b.cmd.Wait()
}

// modes are the options with which pgx works behind it.
func (b *bouncer) modes() []string {
	modes := []string{"exec", "simple_protocol", "cache_describe"}
	if b.prepares() {
		modes = append(modes, "cache_statement")
	}
	return modes
}

func TestPgbouncerInTransactionMode(t *testing.T) {
	w := newWorld(t, pgtest.Options{Settings: map[string]string{"max_prepared_transactions": "1"}})
	w.do(t, soakTables)
	b := startBouncer(t, w)
	t.Logf("pgbouncer %v", b.version)
	faults := []fault{
		{name: "server-connection-terminated", where: locked, times: 1, dies: true, strike: terminate},
		{name: "cancelled", where: locked, times: 1, strike: cancel},
		{name: "reset-amid-row", where: amidRow, times: 1, dies: true, strike: turn(reset)},
		{name: "closed-amid-row-twice", where: amidRow, times: 2, dies: true, strike: turn(closed)},
		{name: "restarted-while-idle", where: idle, times: 1, dies: true, strike: func(t *testing.T, w *world, _ int) {
			w.proxy.greet(held)
			b.stop()
			b.start(t)
			w.proxy.greet(passing)
			w.proxy.turn(passing, held)
		}},
		{name: "stopped-while-idle", where: idle, times: 1, dies: true, strike: func(t *testing.T, w *world, _ int) {
			w.proxy.refuse()
			b.stop()
		}, heal: func(t *testing.T, w *world) {
			b.start(t)
			w.proxy.listen(t)
		}},
	}
	s := newSoak(t, w)
	s.prepared, s.calm = b.prepares(), true
	for _, mode := range b.modes() {
		t.Run(mode, func(t *testing.T) {
			w.leavesNothing(t)
			dsn := w.dsn("default_query_exec_mode=" + mode)

			// Reads, writes and transactions of many on its few connections.
			db, err := sql.Open("coalesce-pgx", dsn)
			must(t, err)
			s.TB, s.dbs = t, []*sql.DB{db}
			var wg sync.WaitGroup
			for i := range uint64(32) {
				wg.Go(func() {
					n := 0
					s.work(rand.New(rand.NewPCG(1, i)), func() bool { n++; return n <= 30 })
				})
			}
			wg.Wait()
			s.settled()
			if st := coalesce.StatsOf(db); st.Joined == 0 || st.Held == 0 {
				t.Errorf("nothing was shared, or nothing held: %+v", st)
			}
			must(t, db.Close())

			opt := clientOptions{dsn: dsn}
			for _, f := range faults {
				t.Run(f.name, func(t *testing.T) {
					want := f.alone(t, w, w.open(t, "pgx", opt))
					t.Logf("pgx: %v; again: %v", want[0], want[1])
					want = sentAgain(want)
					sameOutcomes(t, "alone", f.alone(t, w, w.open(t, "coalesce-pgx", opt)), want)
					f.together(t, w, w.open(t, "coalesce-pgx", opt.with(crowd)), want)
				})
			}
		})
	}
}
