package catalog

import (
	"slices"
	"testing"
)

func TestBodiesThatChangeTheSessionAreFound(t *testing.T) {
	for src, want := range map[string]bool{
		"BEGIN NEW.at := now(); RETURN NEW; END":                                  false,
		"BEGIN UPDATE t SET n = 1; RETURN NEW; END":                               false,
		"BEGIN INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING; RETURN NULL; END": false,
		"INSERT INTO t VALUES (1) ON CONFLICT (n) DO UPDATE SET n = 2":            false,
		"BEGIN -- SET a = b;\n/* ; SET /* ; */ ; LOAD 'x' */ RETURN NEW; END":     false,
		"BEGIN RAISE NOTICE '; SET x'; RETURN NEW; END":                           false,
		"BEGIN PERFORM $q$; EXECUTE 'x' $q$; RETURN NEW; END":                     false,
		`BEGIN NEW."execute" := NEW.temp || E'\';'; RETURN NEW; END`:              false,
		"DECLARE r record; BEGIN FOR r IN SELECT 1 LOOP NULL; END LOOP; END":      false,
		"BEGIN SET app.x = 1; RETURN NEW; END":                                    true,
		"BEGIN set\tapp.x = 1; RETURN NEW; END":                                   true,
		"BEGIN IF true THEN SET app.x = 1; END IF; END":                           true,
		"BEGIN IF true THEN NULL; ELSE/**/RESET ALL; END IF; END":                 true,
		"BEGIN FOR r IN SELECT * FROM t FOR UPDATE LOOP SET a = 1; END LOOP; END": true,
		"<<a>> BEGIN <<b>> SET a = 1; END":                                        true,
		"BEGIN EXECUTE NEW.sql; END":                                              true,
		"BEGIN RETURN QUERY EXECUTE 'x'; END":                                     true,
		"BEGIN CREATE TEMP TABLE t(n int); END":                                   true,
		"SELECT n INTO TEMPORARY t FROM u":                                        true,
		"INSERT INTO pg_temp.t VALUES (1)":                                        true,
		`INSERT INTO "pg_temp".t VALUES (1)`:                                      true,
		"UPDATE pg_settings SET setting = 'x'":                                    true,
		"SELECT 1; LISTEN x":                                                      true,
		"BEGIN CALL p(); END":                                                     true,
		"DO 'BEGIN NULL; END'":                                                    true,
		`BEGIN x := 'a\'; SET b = 1; -- '`:                                        true, // with standard_conforming_strings on
		`BEGIN x := E'a\''; SET b = 1; -- '`:                                      true,
		`BEGIN x := 'a\'' || f(); END`:                                            true,
		"BEGIN x := $1; SET b = $2; END":                                          true,
		"BEGIN x$a$ := 1; SET b = 1; y$a$ := 2; END":                              true,
		`BEGIN PERFORM U&"set\005fconfig"('a', 'b', false); END`:                  true,
	} {
		if b := scan(src); b.changes != want {
			t.Errorf("%s: changes the session: %v, want %v", src, b.changes, want)
		}
	}
}

func TestNamesBeforeParenthesesAreCalls(t *testing.T) {
	b := scan(`BEGIN PERFORM Set_Config ('a'), public."F x"/* */ (1), f --
(2), 'g(', $$h($$, /* i( */ E'\'j(', 1.k(1) FROM l; END`)
	slices.Sort(b.calls)
	if want := []string{"F x", "f", "k", "set_config"}; !slices.Equal(b.calls, want) {
		t.Errorf("calls %q, want %q", b.calls, want)
	}
	if !slices.Contains(b.names, "l") {
		t.Errorf("the names are %q", b.names)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(`BEGIN x := E'a\''; "b""c"; $q$ $q$ /* -- */ END`)
	f.Fuzz(func(t *testing.T, src string) { scan(src) })
}
