package coalesce

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

func TestOptionsAreTakenOutOfTheDSN(t *testing.T) {
	all := Config{TTL: time.Minute, MaxBytes: 1 << 20, MaxResultBytes: 512 << 10, MaxConns: 3, Off: true}
	for _, test := range []struct {
		dsn, rest string
		cfg       Config
	}{
		{"postgres://u:p@h/d", "postgres://u:p@h/d", Config{}},
		{"postgres://u:p@h/d?sslmode=disable", "postgres://u:p@h/d?sslmode=disable", Config{}},
		{"postgres://h/d?coalesce_ttl=1m&sslmode=disable&coalesce_max_bytes=1MiB&coalesce_max_result_bytes=512KiB&coalesce_max_conns=3&coalesce=off", "postgres://h/d?sslmode=disable", all},
		{"postgresql://h/d?coalesce=on", "postgresql://h/d", Config{}},
		{"postgres://h/d?coalesce_ttl=0", "postgres://h/d", Config{TTL: -1}},
		{"postgres://h/d?coalesce%5fttl=30s", "postgres://h/d", Config{TTL: 30 * time.Second}},
		{"host=h user=u", "host=h user=u", Config{}},
		{"host=h coalesce_ttl='1m' password = 'a b\\'c' coalesce_max_bytes=1048576 coalesce_max_result_bytes = 524288 coalesce_max_conns=3 coalesce=off dbname=d", `host=h password='a b\'c' dbname=d`, all},
		{`password=a\ b user=u`, `password=a\ b user=u`, Config{}},
		{"", "", Config{}},
		{"registeredConnConfig12", "registeredConnConfig12", Config{}},
	} {
		rest, cfg, err := parseDSN(test.dsn)
		if err != nil || rest != test.rest || cfg != test.cfg {
			t.Errorf("parseDSN(%q) = %q, %+v, %v; want %q, %+v", test.dsn, rest, cfg, err, test.rest, test.cfg)
		}
	}
}

func TestBadOptionsFailInOpenAndSayWhatIsAllowed(t *testing.T) {
	for option, want := range map[string]string{
		"coalesce_tll=30s":                  "coalesce_ttl",
		"Coalesce_ttl=30s":                  "coalesce_ttl",
		"coalesce_ttl=30":                   "duration",
		"coalesce_ttl=-1s":                  "duration",
		"coalesce_ttl=":                     "duration",
		"coalesce_max_bytes=64MB":           "64MiB",
		"coalesce_max_bytes=0":              "greater than 0",
		"coalesce_max_bytes=-5":             "greater than 0",
		"coalesce_max_bytes=99999999999GiB": "greater than 0",
		"coalesce_max_result_bytes=big":     "512KiB",
		"coalesce_max_conns=-1":             "number of connections",
		"coalesce_max_conns=many":           "number of connections",
		"coalesce=maybe":                    `"on" or "off"`,
	} {
		name, _, _ := strings.Cut(option, "=")
		for _, dsn := range []string{"postgres://u:s3cret@h/d?" + option, "host=h password=s3cret " + option} {
			db, err := sql.Open("coalesce-pgx", dsn)
			if err == nil {
				db.Close()
				t.Errorf("%s: opened", dsn)
				continue
			}
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: error %q names not both %q and %q", dsn, err, name, want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%s: error %q shows the password", dsn, err)
			}
		}
	}
}

func TestNoErrorOfAMalformedDSNShowsThePassword(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:s3#cret@h/d", "postgres://u:s3%cret@h/d", "postgres://u:s3 cret@h/d", "postgres://u:cret@h:port/d",
		"postgres://u:cret@h/d?sslmode=wrong", "postgres://u:cret@h/d?connect_timeout=cret", "postgres://h/d?password=cret&sslmode=cret",
		"user=u password=s3 cret host=h", "password='s3 cret", "password=cret host", "u:cret@h", "=cret", "cret",
		"host=h coalesce_ttl=10s;password=cret", "host=h coalesce_ttl=10s,password=cret", "host=h coalesce_ttl='10s password=cret dbname='d'", "host=h coalesce_ttl= password=cret",
		"postgres://h/d?coalesce_ttl=10s;password=cret", "postgres://h/d?coalesce_ttl=10s%26password=cret", "postgres://h/d?coalesce;password=cret", "host=h coalesce_x;password=cret=1",
		"host=h connect_timeout='5 password=cret'", "host=h sslmode='x password=cret'", "host=h sslmode=verify-full sslrootcert='/nope password=cret'", "host=h port='1 password = cret'",
	} {
		db, err := sql.Open("coalesce-pgx", dsn)
		if err == nil {
			db.Close()
			if _, err := pgx.ParseConfig(dsn); err != nil {
				t.Errorf("%s: opened, but pgx says %v", dsn, err)
			}
		} else if strings.Contains(err.Error(), "cret") || !strings.HasPrefix(err.Error(), "coalesce: ") {
			t.Errorf("%s: error is %q", dsn, err)
		}
	}
}

func TestErrorOfAMalformedDSNSaysWhatIsWrong(t *testing.T) {
	const hint = "percent-encoded"
	for dsn, want := range map[string]string{
		"postgres://u@h/d?sslmode=verify-full&sslrootcert=/nope/ca.pem": "open /nope/ca.pem",
		"postgres://u@h/d?sslmode=maybe":                                "sslmode is invalid",
		"host=h sslcert=/nope/c.pem sslmode=require":                    `both "sslcert" and "sslkey" are required`,
		"host=h connect_timeout=abc":                                    `parsing "abc"`,
		"host=h user='u":                                                "not closed",
		"host=h user":                                                   "keywords and values",
		"Postgres://u:p@h/d?coalesce_ttl=1m":                            "keywords and values",
		"jdbc:postgresql://h/d?user=u&password=p":                       "keywords and values",
		"postgres://u:p/w@h/d":                                          hint,
	} {
		_, err := sql.Open("coalesce-pgx", dsn)
		if err == nil || !strings.Contains(err.Error(), want) || want != hint && strings.Contains(err.Error(), hint) {
			t.Errorf("%s: got %v, want it to say %s", dsn, err, want)
		}
	}
}

func TestWhatPgxOpensIsOpened(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u@%2Fvar%2Frun%2Fpostgresql/d", "postgres://u:pa#ss@h/d", "postgres://u:pa?ss@h/d?sslmode=disable",
		"postgres://u:p[a]ss@h/d", "postgres://u:p^a<s>|\"@h/d", "postgres://a:1,b:2/d?target_session_attrs=any", "postgres://", "",
	} {
		if _, err := pgx.ParseConfig(dsn); err != nil {
			continue // not with this version of pgx
		}
		options := "?coalesce_ttl=1m"
		if strings.Contains(dsn, "?") {
			options = "&coalesce_ttl=1m"
		}
		for _, dsn := range []string{dsn, dsn + options} {
			if dsn == options {
				continue
			}
			rest, cfg, err := parseDSN(dsn)
			if err != nil || strings.Contains(rest, "coalesce") || strings.HasSuffix(dsn, options) && cfg.TTL != time.Minute {
				t.Errorf("parseDSN(%q) = %q, %+v, %v", dsn, rest, cfg, err)
			}
			db, err := sql.Open("coalesce-pgx", dsn)
			if err != nil {
				t.Errorf("%s: %v; pgx opens it", dsn, err)
				continue
			}
			db.Close()
		}
	}
}

func TestARegisteredConfigOpensUnparsed(t *testing.T) {
	cfg, err := pgx.ParseConfig("host=h user=u")
	if err != nil {
		t.Fatal(err)
	}
	name := stdlib.RegisterConnConfig(cfg)
	defer stdlib.UnregisterConnConfig(name)
	db, err := sql.Open("coalesce-pgx", name)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	for _, more := range []string{"?coalesce_ttl=1s", " coalesce_ttl=1s", "&x"} {
		if _, err := sql.Open("coalesce-pgx", name+more); !errors.Is(err, errRegistered) {
			t.Errorf("with %q behind it: %v; want %v", more, err, errRegistered)
		}
	}
}

// FuzzDSN checks that what is left of a DSN means to pgx what the whole did.
func FuzzDSN(f *testing.F) {
	for _, seed := range []string{
		"postgres://u:p@h:5/d?sslmode=disable&coalesce_ttl=1s", "host=h user='a b' coalesce=off port=5", `host=a\ b password='\''`, `host=\ `, "postgres://h/?coalesce", "a=b=c", "host= port=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		rest, cfg, err := parseDSN(dsn)
		if err != nil || cfg != (Config{}) {
			return // nothing to compare with
		}
		want, errWant := pgx.ParseConfig(dsn)
		got, errGot := pgx.ParseConfig(rest)
		if (errWant == nil) != (errGot == nil) {
			t.Fatalf("%q: pgx says %v; of the rest %q it says %v", dsn, errWant, rest, errGot)
		}
		if errWant == nil && (want.Host != got.Host || want.Port != got.Port || want.User != got.User || want.Password != got.Password || want.Database != got.Database || len(want.RuntimeParams) != len(got.RuntimeParams)) {
			t.Errorf("%q and the rest %q mean different things to pgx", dsn, rest)
		}
	})
}

// FuzzDSNPassword checks that no error shows the password of a DSN, right or
// malformed, and that what looks like an option of ours is one or fails.
func FuzzDSNPassword(f *testing.F) {
	for name, opt := range dsnOptions {
		for form := range uint8(8) {
			f.Add(form, " '\\", name, opt.allowed)
			f.Add(form, "/?#@%", name, "1")
			f.Add(form, "'", name, "'1") // a quote too few
		}
	}
	for _, option := range []string{"coalesce_tll=30s", "Coalesce=on", "coalesce_=", "sslmode=wrong", "connect_timeout='", "port=x", "target_session_attrs=?", "sslrootcert=/nope", "host=a,b:", "sslmode='x", "user=a b"} {
		name, value, _ := strings.Cut(option, "=")
		for form := range uint8(8) {
			f.Add(form, ":", name, value)
		}
	}
	f.Fuzz(func(t *testing.T, form uint8, middle, name, value string) {
		// Its ends are looked for: a part of it may be a word of the error's.
		password := "zqj" + middle + "jqz"
		isURL, escaped, last := form&1 != 0, form&2 != 0, form&4 != 0
		if !escaped && strings.ContainsAny(middle, "=") {
			return // the rest of it is the value of something else
		}
		escape := func(s string) string { return s }
		if escaped && isURL {
			escape = url.QueryEscape
		} else if escaped {
			escape = func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
		}
		option := name + "=" + escape(value)
		if isURL && escaped {
			option = escape(name) + "=" + escape(value)
		}
		var dsn string
		switch {
		case isURL && last:
			dsn = "postgres://u@h/d?" + option + "&password=" + escape(password)
		case isURL:
			dsn = "postgres://u:" + strings.ReplaceAll(escape(password), "+", "%20") + "@h/d?" + option
		case last:
			dsn = "host=h " + option + " password=" + escape(password)
		default:
			dsn = "host=h password=" + escape(password) + " " + option
		}
		_, err := (&Driver{}).OpenConnector(dsn)
		if err != nil && (strings.Contains(err.Error(), "zqj") || strings.Contains(err.Error(), "jqz")) {
			t.Errorf("%q: the error shows the password: %v", dsn, err)
		}
		_, known := dsnOptions[name]
		if escaped && !known && plain.MatchString(name) && strings.HasPrefix(strings.ToLower(name), "coalesce") && (err == nil || !strings.Contains(err.Error(), name)) {
			t.Errorf("%q: got %v, want an error that names %q", dsn, err, name)
		}
	})
}
