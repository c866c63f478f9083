package faults

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// fate is what becomes of a link.
type fate uint8

const (
	passing fate = iota
	held         // nothing passes and nothing is lost
	lost         // what comes is thrown away, and neither end hears that the other is gone
	closed       // both ends see an orderly end (FIN)
	reset        // both ends see a reset (RST)
)

// proxy is a TCP proxy before one server. Its links meet their fate when a
// test says so, or at a chosen place of what the server sends, and stay as
// they are until the test says otherwise.
type proxy struct {
	addr string // immutable
	wg   sync.WaitGroup

	mu       sync.Mutex // guards all below, and the links
	changed  *sync.Cond // on mu: some link's fate
	ln       net.Listener
	upstream string
	links    map[*link]struct{}
	dials    int           // links asked for, but for those that cancel a query
	greeting fate          // of new links
	mark     string        // holds the link on which it has passed; "": none
	quota    int           // holds the link on which more bytes have passed; 0: none
	delay    time.Duration // of everything that passes
	deaf     bool          // to those who want a query cancelled: what they say is lost
	unheard  int           // how often a client said something that was held or lost
}

// link is one connection through the proxy. Its fields are guarded by proxy.mu.
type link struct {
	p      *proxy
	ends   []net.Conn // the client's, and once it is dialled the server's
	fate   fate
	tail   []byte // what has passed last from the server
	passed int    // bytes from the server since the quota was set
}

func newProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	p := &proxy{addr: "127.0.0.1:0", upstream: upstream, links: make(map[*link]struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.listen(t)
	p.addr = p.ln.Addr().String()
	t.Cleanup(func() {
		p.refuse()
		p.all(reset)
		p.wg.Wait()
	})
	return p
}

// listen takes connections again.
func (p *proxy) listen(t testing.TB) {
	t.Helper()
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.ln = ln
	p.mu.Unlock()
	p.wg.Go(func() { p.accept(ln) })
}

func (p *proxy) accept(ln net.Listener) {
	for {
		client, err := ln.Accept()
		if err != nil {
			return
		}
		l := &link{p: p, ends: []net.Conn{client}}
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(l.serve)
	}
}

// refuse lets the system refuse all connections from now on.
func (p *proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ln.Close()
}

// leadTo has new links lead to another server.
func (p *proxy) leadTo(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = addr
}

// greet decides what becomes of new links.
func (p *proxy) greet(f fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeting = f
}

// trap holds every link on which mark passes from the server: right behind it,
// in the middle of whatever message it is in.
func (p *proxy) trap(mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark = mark
}

// trapAfter holds every link on which n more bytes pass from the server: for
// what cannot be read on its way.
func (p *proxy) trapAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quota = n
	for l := range p.links {
		l.passed = 0
	}
}

// disarm leaves what is held as it is, and holds nothing more.
func (p *proxy) disarm() {
	p.trap("")
	p.trapAfter(0)
}

func (p *proxy) slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

func (p *proxy) deafen(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
}

// in counts the links of one fate.
func (p *proxy) in(f fate) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		if l.fate == f {
			n++
		}
	}
	return n
}

func (p *proxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *proxy) dialled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func (p *proxy) said() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unheard
}

// turn changes the fate of the links that have one of these.
func (p *proxy) turn(to fate, from ...fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		for _, f := range from {
			if l.fate == f {
				l.turnLocked(to)
				break
			}
		}
	}
}

func (p *proxy) all(to fate) { p.turn(to, passing, held, lost) }

// turnOne changes the fate of one of the passing links, if there is any.
func (p *proxy) turnOne(r *rand.Rand, to fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*link
	for l := range p.links {
		if l.fate == passing {
			all = append(all, l)
		}
	}
	if len(all) > 0 {
		all[r.IntN(len(all))].turnLocked(to)
	}
}

// turnLocked decides the fate of a link. Closed links keep theirs.
func (l *link) turnLocked(to fate) {
	if l.fate >= closed {
		return
	}
	l.fate = to
	if to >= closed {
		for _, c := range l.ends {
			if to == reset {
				c.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
		}
	}
	l.p.changed.Broadcast()
}

// settledLocked waits until the link is neither held nor lost, and reports
// whether it passes.
func (l *link) settledLocked() bool {
	for l.fate == held || l.fate == lost {
		l.p.changed.Wait()
	}
	return l.fate == passing
}

// cancelRequest is the code by which the first packet of a link that only
// cancels a query can be told.
const cancelRequest = 80877102

func (l *link) serve() {
	p, client := l.p, l.ends[0]
	defer func() {
		p.mu.Lock()
		l.turnLocked(closed)
		delete(p.links, l)
		p.mu.Unlock()
	}()
	hello := make([]byte, 8, 1<<10) // a length and a code
	if _, err := io.ReadFull(client, hello); err != nil {
		return
	}
	// All of it is read: closing a socket with something unread resets it.
	hello = hello[:max(len(hello), min(int(binary.BigEndian.Uint32(hello)), cap(hello)))]
	if _, err := io.ReadFull(client, hello[8:]); err != nil {
		return
	}
	p.mu.Lock()
	cancels := binary.BigEndian.Uint32(hello[4:]) == cancelRequest
	if !cancels {
		p.dials++
	}
	l.turnLocked(p.greeting)
	if cancels && p.deaf {
		l.turnLocked(lost)
	}
	upstream := p.upstream
	l.hearLocked()
	admitted := l.settledLocked()
	p.mu.Unlock()
	if !admitted {
		return
	}
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		l.end(err)
		return
	}
	p.mu.Lock()
	l.ends = append(l.ends, server)
	if l.fate >= closed {
		server.Close()
	}
	p.mu.Unlock()
	if _, err := server.Write(hello); err != nil {
		l.end(err)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { l.pump(server, client, false) })
	l.pump(client, server, true)
	wg.Wait()
}

func (l *link) pump(to io.Writer, from io.Reader, answers bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			var ok bool
			if b, ok = l.forward(to, b, answers); !ok {
				return
			}
		}
		if err != nil {
			l.end(err)
			return
		}
	}
}

// forward sends b on, as far as a trap lets it, and returns the rest.
func (l *link) forward(to io.Writer, b []byte, answers bool) (rest []byte, ok bool) {
	l.p.mu.Lock()
	if !answers {
		l.hearLocked()
	}
	for l.fate == held {
		l.p.changed.Wait()
	}
	fate, delay := l.fate, l.p.delay
	n, trapped := len(b), false
	if fate == passing && answers {
		n, trapped = l.lookLocked(b)
	}
	l.p.mu.Unlock()
	switch fate {
	case lost:
		return nil, true
	case passing:
	default:
		return nil, false
	}
	time.Sleep(delay)
	if _, err := to.Write(b[:n]); err != nil {
		l.end(err)
		return nil, false
	}
	if trapped {
		l.p.mu.Lock()
		if armed := l.p.mark != "" || l.p.quota > 0; armed && l.fate == passing {
			l.turnLocked(held)
		}
		l.p.mu.Unlock()
	}
	return b[n:], true
}

// hearLocked notes what the client said if it does not pass.
func (l *link) hearLocked() {
	if l.fate == held || l.fate == lost {
		l.p.unheard++
	}
}

// lookLocked returns how much of b passes before a trap holds the link.
func (l *link) lookLocked(b []byte) (n int, trapped bool) {
	n = len(b)
	if q := l.p.quota; q > 0 {
		if l.passed+n > q {
			n, trapped = max(q-l.passed, 0), true
		}
		l.passed += n
	}
	if mark := l.p.mark; mark != "" {
		tail := l.tail[max(len(l.tail)-len(mark)+1, 0):]
		seen := append(bytes.Clone(tail), b...)
		if i := bytes.Index(seen, []byte(mark)); i >= 0 {
			n, trapped = i+len(mark)-len(tail), true
		}
	}
	l.tail = append(l.tail, b[:n]...)
	l.tail = bytes.Clone(l.tail[max(len(l.tail)-64, 0):])
	return n, trapped
}

// end tells the other end that one is gone, and how.
func (l *link) end(err error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if !l.settledLocked() {
		return
	}
	if err == io.EOF {
		l.turnLocked(closed)
	} else {
		l.turnLocked(reset)
	}
}
