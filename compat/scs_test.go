package compat

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alexedwards/scs/postgresstore"
	"github.com/alexedwards/scs/v2"
)

// sessionsTable is the table that the store's documentation asks for.
func (r *run) sessionsTable() {
	r.Helper()
	r.exec(`CREATE TABLE sessions (token TEXT PRIMARY KEY, data BYTEA NOT NULL, expiry TIMESTAMPTZ NOT NULL)`,
		`CREATE INDEX sessions_expiry_idx ON sessions (expiry)`)
}

func TestSCSStore(t *testing.T) {
	same(t, func(r *run) {
		r.sessionsTable()
		store := postgresstore.NewWithCleanupInterval(r.db, 0)
		tokens := []string{"anna", "bert", ""}
		// Each is asked twice: the second answer may be a held one.
		look := func(what string) {
			r.Helper()
			for range 2 {
				for _, token := range tokens {
					data, found, err := store.Find(token)
					r.see(what+": "+token, data, found, err)
				}
				all, err := store.All()
				r.see(what+": all", all, err)
				r.query(`SELECT token, data FROM sessions ORDER BY token`)
				r.query(`SELECT count(*) FROM sessions WHERE expiry > $1`, time.Now().Add(2*time.Hour))
			}
		}
		later := time.Now().Add(time.Hour)
		look("nobody")
		r.must(store.Commit("anna", []byte("1"), later))
		look("anna")
		r.must(store.Commit("anna", []byte("2"), later))
		r.must(store.Commit("bert", []byte{}, later))
		r.must(store.Commit("", []byte{0, 0xff}, later))
		look("all")
		r.must(store.Commit("anna", []byte("2"), later.Add(3*time.Hour)))
		look("anna for longer")
		r.must(store.Delete("bert"))
		r.must(store.Delete("bert"))
		look("without bert")

		r.must(store.Commit("bert", []byte("late"), time.Now().Add(-time.Second)))
		look("bert came too late")
		r.must(store.Commit("bert", []byte("again"), later))
		look("bert again")
		r.exec(`UPDATE sessions SET expiry = now() - interval '1 day' WHERE token = 'anna'`)
		look("anna expired")
		tx, err := r.db.BeginTx(bg, nil)
		r.must(err)
		_, err = tx.Exec(`UPDATE sessions SET expiry = now() - interval '1 day'`)
		r.must(err)
		look("all will expire")
		r.must(tx.Commit())
		look("all expired")
		r.exec(`DELETE FROM sessions WHERE expiry < current_timestamp`)
		look("nobody is left")
		r.see("no data", store.Commit("anna", nil, later))
		r.exec(`DROP TABLE sessions`)
		look("without a table")
	})
}

// A session that runs out is gone at its time, although nobody wrote.
func TestSCSSessionRunsOut(t *testing.T) {
	same(t, func(r *run) {
		r.sessionsTable()
		store := postgresstore.NewWithCleanupInterval(r.db, 0)
		var expiry time.Time
		r.must(r.db.QueryRow(`SELECT clock_timestamp() + interval '200 ms'`).Scan(&expiry))
		r.must(store.Commit("anna", []byte("1"), expiry))
		for {
			var out bool
			r.must(r.db.QueryRow(`SELECT clock_timestamp() >= $1`, expiry).Scan(&out))
			_, found, err := store.Find("anna")
			r.must(err)
			all, err := store.All()
			r.must(err)
			if out {
				r.see("found", found, len(all))
				return
			}
		}
	})
}

// shop is a small site with sessions. Every page shows all that the session
// knows.
func shop(sessions *scs.SessionManager) http.Handler {
	mux := http.NewServeMux()
	show := func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		page := map[string]any{"status": sessions.Status(ctx)}
		for _, key := range sessions.Keys(ctx) {
			page[key] = sessions.Get(ctx, key)
		}
		json.NewEncoder(w).Encode(page)
	}
	fail := func(w http.ResponseWriter, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
	mux.HandleFunc("GET /", show)
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, req *http.Request) {
		fail(w, sessions.RenewToken(req.Context()))
		sessions.Put(req.Context(), "user", req.FormValue("user"))
		show(w, req)
	})
	mux.HandleFunc("POST /add", func(w http.ResponseWriter, req *http.Request) {
		sessions.Put(req.Context(), "items", sessions.GetInt(req.Context(), "items")+1)
		sessions.Put(req.Context(), "flash", "added")
		show(w, req)
	})
	mux.HandleFunc("POST /flash", func(w http.ResponseWriter, req *http.Request) {
		fmt.Fprintln(w, "flash:", sessions.PopString(req.Context(), "flash"))
		show(w, req)
	})
	mux.HandleFunc("POST /clear", func(w http.ResponseWriter, req *http.Request) {
		fail(w, sessions.Clear(req.Context()))
		show(w, req)
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, req *http.Request) {
		fail(w, sessions.Destroy(req.Context()))
		show(w, req)
	})
	return sessions.LoadAndSave(mux)
}

// visitor is one browser.
type visitor struct {
	r      *run
	client *http.Client
	site   string
}

func (r *run) visitor(site *httptest.Server) *visitor {
	r.Helper()
	jar, err := cookiejar.New(nil)
	r.must(err)
	return &visitor{r, &http.Client{Jar: jar}, site.URL}
}

func (v *visitor) do(method, path string) string {
	v.r.Helper()
	req, err := http.NewRequest(method, v.site+path, nil)
	v.r.must(err)
	resp, err := v.client.Do(req)
	v.r.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	v.r.must(err)
	cookies := 0
	for _, c := range resp.Cookies() {
		if c.Name == "session" && c.MaxAge >= 0 {
			cookies++
		}
	}
	return fmt.Sprintf("%s %s: %s, %d cookies: %s", method, path, resp.Status, cookies, body)
}

// steal gives v another visitor's cookies of now, as a second tab or an
// attacker has them.
func (v *visitor) steal(from *visitor) {
	req, err := http.NewRequest("GET", v.site, nil)
	v.r.must(err)
	v.client.Jar.SetCookies(req.URL, from.client.Jar.Cookies(req.URL))
}

func TestSCSSessionManager(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		t.Run(fmt.Sprintf("hashed-%v", hashed), func(t *testing.T) {
			same(t, func(r *run) {
				r.sessionsTable()
				sessions := scs.New()
				store := postgresstore.New(r.db)
				defer store.StopCleanup()
				sessions.Store = store
				sessions.HashTokenInStore = hashed
				site := httptest.NewServer(shop(sessions))
				r.Cleanup(site.Close)

				anna, tab, bert := r.visitor(site), r.visitor(site), r.visitor(site)
				// The page is asked for twice after every step, by everyone.
				step := func(v *visitor, method, path string) {
					r.Helper()
					r.see("step", v.do(method, path))
					for range 2 {
						for _, v := range []*visitor{anna, tab, bert} {
							r.see("page", v.do("GET", "/"))
						}
						r.query(`SELECT count(*) FROM sessions`)
					}
				}
				step(anna, "GET", "/")
				step(anna, "POST", "/add")
				tab.steal(anna)
				step(anna, "POST", "/add")
				step(tab, "POST", "/add")
				step(anna, "POST", "/login?user=anna") // the other tab's token is of the past
				tab.steal(anna)
				step(bert, "POST", "/login?user=bert")
				step(anna, "POST", "/flash")
				step(tab, "POST", "/flash")
				for range 5 {
					step(tab, "POST", "/add")
				}
				r.exec(`UPDATE sessions SET expiry = now() - interval '1 minute' WHERE position('bert' IN encode(data, 'escape')) > 0`)
				step(anna, "POST", "/clear")
				step(bert, "POST", "/login?user=bert")
				tab.steal(anna)
				step(anna, "POST", "/logout")
				step(tab, "POST", "/add") // its token must be worth nothing now
				r.exec(`DELETE FROM sessions`)
				step(bert, "GET", "/")
			})
		})
	}
}

func TestSCSVisitorsAtOnce(t *testing.T) {
	same(t, func(r *run) {
		r.sessionsTable()
		sessions := scs.New()
		sessions.Store = postgresstore.NewWithCleanupInterval(r.db, 0)
		site := httptest.NewServer(shop(sessions))
		r.Cleanup(site.Close)
		const visitors, items = 8, 10
		r.db.SetMaxOpenConns(visitors)

		pages := make([][]string, visitors)
		var wg sync.WaitGroup
		for i := range visitors {
			v := r.visitor(site)
			wg.Go(func() {
				see := func(s string) { pages[i] = append(pages[i], s) }
				see(v.do("POST", fmt.Sprintf("/login?user=%d", i)))
				for range items {
					see(v.do("POST", "/add"))
					see(v.do("GET", "/"))
				}
				if i%2 == 0 {
					see(v.do("POST", "/logout"))
				}
				see(v.do("GET", "/"))
			})
		}
		wg.Wait()
		r.see("pages", pages)

		all, err := sessions.Store.(scs.IterableStore).All()
		r.must(err)
		var users []string
		for _, data := range all {
			_, values, err := sessions.Codec.Decode(data)
			r.must(err)
			users = append(users, fmt.Sprint(values["user"], " ", values["items"]))
		}
		slices.Sort(users)
		r.see("left", users)
		r.exec(`DELETE FROM sessions`)
	})
}
