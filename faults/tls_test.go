package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coalesce-pgx/coalesce/internal/pgtest"
)

const (
	anyone     = "host all app 127.0.0.1/32 scram-sha-256"
	onlyTLS    = "hostssl all app 127.0.0.1/32 scram-sha-256"
	withoutTLS = "hostnossl all app 127.0.0.1/32 scram-sha-256"
)

func TestTLSIsAsOnPgx(t *testing.T) {
	w := newWorld(t, pgtest.Options{})
	w.opaque = true
	cert, key := selfSigned(t)
	ours := filepath.Join(t.TempDir(), "ours.crt")
	must(t, os.WriteFile(ours, []byte(cert), 0o600))
	other, _ := selfSigned(t)
	theirs := filepath.Join(t.TempDir(), "theirs.crt")
	must(t, os.WriteFile(theirs, []byte(other), 0o600))
	w.dataFile(t, "server.crt", cert)
	w.dataFile(t, "server.key", key)

	for _, c := range []struct {
		name  string
		ssl   string // of the server
		admit string
		dsn   string // options
		host  string // default: that of the proxy, which is the certificate's
		tls   bool   // it comes to a connection with TLS
		plain bool   // to one without
	}{
		{name: "require", ssl: "on", admit: anyone, dsn: "sslmode=require", tls: true},
		{name: "require-of-server-without", ssl: "off", admit: anyone, dsn: "sslmode=require"},
		{name: "verify-full", ssl: "on", admit: onlyTLS, dsn: "sslmode=verify-full&sslrootcert=" + ours, tls: true},
		{name: "verify-full-of-unknown-authority", ssl: "on", admit: onlyTLS, dsn: "sslmode=verify-full&sslrootcert=" + theirs},
		{name: "verify-full-of-another-host", ssl: "on", admit: onlyTLS, dsn: "sslmode=verify-full&sslrootcert=" + ours, host: "localhost"},
		{name: "disable", ssl: "on", admit: anyone, dsn: "sslmode=disable", plain: true},
		{name: "disable-where-it-is-required", ssl: "on", admit: onlyTLS, dsn: "sslmode=disable"},
		{name: "prefer-of-server-without", ssl: "off", admit: anyone, dsn: "sslmode=prefer", plain: true},
		{name: "prefer-where-it-is-forbidden", ssl: "on", admit: withoutTLS, dsn: "sslmode=prefer", plain: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.leavesNothing(t)
			w.do(t, "ALTER SYSTEM SET ssl = "+c.ssl)
			w.admit(t, c.admit)
			dsn, err := url.Parse(w.dsn(c.dsn))
			must(t, err)
			if c.host != "" {
				dsn.Host = net.JoinHostPort(c.host, dsn.Port())
			}
			opt := clientOptions{dsn: dsn.String()}
			plain, shared := w.open(t, "pgx", opt), w.open(t, "coalesce-pgx", opt)
			want := plain.read(bg)
			t.Logf("pgx: %v", want)
			same(t, "a connection comes about", want.err == nil, c.tls || c.plain)
			plain.Close()
			same(t, "a read", shared.read(bg).String(), want.String())
			if want.err != nil {
				failTogether(t, w, shared, want)
				return
			}
			same(t, "server connections, with TLS or without", ask[int](t, w, `SELECT count(*)
				FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1 AND ssl = $2`, appName, c.tls), 1)
			for _, to := range []fate{reset, closed} {
				f := fault{where: amidRow, times: 1, dies: true, strike: turn(to)}
				want := f.alone(t, w, w.open(t, "pgx", opt))
				t.Logf("pgx, cut off: %v", want[0])
				sameOutcomes(t, "cut off", f.alone(t, w, w.open(t, "coalesce-pgx", opt)), want)
				f.together(t, w, w.open(t, "coalesce-pgx", opt.with(crowd)), want)
			}
		})
	}
}

// selfSigned makes a certificate for the proxy's address.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	var b [2]strings.Builder
	must(t, pem.Encode(&b[0], &pem.Block{Type: "CERTIFICATE", Bytes: der}))
	must(t, pem.Encode(&b[1], &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	return b[0].String(), b[1].String()
}
