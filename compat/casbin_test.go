package compat

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
	gormadapter "github.com/casbin/gorm-adapter/v3"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

const casbinModel = `
[request_definition]
r = sub, obj, act

[policy_definition]
p = sub, obj, act

[role_definition]
g = _, _

[policy_effect]
e = some(where (p.eft == allow))

[matchers]
m = g(r.sub, p.sub) && r.obj == p.obj && r.act == p.act
`

// casbinAdapter is casbin's adapter for GORM, on the *sql.DB of this run.
func (r *run) casbinAdapter() *gormadapter.Adapter {
	r.Helper()
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: r.db}), &gorm.Config{Logger: logger.Discard})
	r.must(err)
	a, err := gormadapter.NewAdapterByDB(db)
	r.must(err)
	return a
}

func (r *run) enforcer() *casbin.Enforcer {
	r.Helper()
	m, err := model.NewModelFromString(casbinModel)
	r.must(err)
	e, err := casbin.NewEnforcer(m, r.casbinAdapter())
	r.must(err)
	return e
}

// casbinState records what is allowed, by an enforcer that changes policies
// and by one that loads them.
func (r *run) casbinState(what string, enforcers ...*casbin.Enforcer) {
	r.Helper()
	for range 2 {
		for i, e := range enforcers {
			if i > 0 {
				r.must(e.LoadPolicy())
			}
			var allowed []string
			for _, sub := range []string{"alice", "bob", "carol", "admin"} {
				for _, obj := range []string{"orders", "users"} {
					for _, act := range []string{"read", "write"} {
						ok, err := e.Enforce(sub, obj, act)
						r.must(err)
						if ok {
							allowed = append(allowed, sub+" "+act+" "+obj)
						}
					}
				}
			}
			r.see(fmt.Sprint(what, " ", i), allowed)
			policy, err := e.GetPolicy()
			r.see("policy", policy, err)
			roles, err := e.GetImplicitRolesForUser("carol")
			r.see("roles", roles, err)
		}
		r.query(`SELECT ptype, v0, v1, v2 FROM casbin_rule ORDER BY id`)
	}
}

func TestCasbin(t *testing.T) {
	same(t, func(r *run) {
		e, loader := r.enforcer(), r.enforcer()
		changed := func(what string, ok bool, err error) {
			r.Helper()
			r.see(what, ok, err)
			r.casbinState(what, e, loader)
		}
		changed("nothing", true, nil)
		ok, err := e.AddPolicy("alice", "orders", "read")
		changed("add", ok, err)
		ok, err = e.AddPolicy("alice", "orders", "read")
		changed("add again", ok, err)
		ok, err = e.AddPolicies([][]string{{"bob", "users", "read"}, {"admin", "orders", "write"}, {"admin", "users", "write"}})
		changed("add many", ok, err)
		ok, err = e.AddGroupingPolicy("carol", "admin")
		changed("add to a role", ok, err)
		ok, err = e.UpdatePolicy([]string{"bob", "users", "read"}, []string{"bob", "users", "write"})
		changed("update", ok, err)
		ok, err = e.RemovePolicy("alice", "orders", "read")
		changed("remove", ok, err)
		ok, err = e.RemovePolicy("alice", "orders", "read")
		changed("remove again", ok, err)
		ok, err = e.RemoveFilteredPolicy(1, "users")
		changed("remove by object", ok, err)
		ok, err = e.DeleteRoleForUser("carol", "admin")
		changed("remove from a role", ok, err)

		// What the loading one still has takes the place of all.
		ok, err = loader.AddGroupingPolicy("bob", "admin")
		r.see("without saving", ok, err)
		r.must(e.SavePolicy())
		changed("save", true, nil)
		e.ClearPolicy()
		r.casbinState("cleared", e)
		r.must(e.LoadPolicy())
		changed("loaded", true, nil)
		r.must(loader.SavePolicy())
		changed("saved by the other", true, nil)

		r.exec(`INSERT INTO casbin_rule (ptype, v0, v1, v2, v3, v4, v5) VALUES ('p', 'carol', 'users', 'read', '', '', '')`)
		r.must(e.LoadPolicy())
		changed("by hand", true, nil)
	})
}

func TestCasbinFilter(t *testing.T) {
	same(t, func(r *run) {
		e, filtered := r.enforcer(), r.enforcer()
		_, err := e.AddPolicies([][]string{{"alice", "orders", "read"}, {"bob", "users", "read"}, {"admin", "users", "write"}})
		r.must(err)
		_, err = e.AddGroupingPolicies([][]string{{"carol", "admin"}, {"bob", "admin"}})
		r.must(err)
		look := func(what string) {
			r.Helper()
			for range 2 {
				for _, f := range []gormadapter.Filter{
					{Ptype: []string{"p"}, V1: []string{"users"}},
					{Ptype: []string{"g"}},
					{V0: []string{"alice", "admin"}},
					{},
				} {
					filtered.ClearPolicy()
					r.must(filtered.LoadFilteredPolicy(f))
					r.casbinState(what, filtered)
					r.see("filtered", filtered.IsFiltered())
				}
			}
		}
		look("all")
		_, err = e.AddPolicy("carol", "users", "read")
		r.must(err)
		look("one more")
		_, err = e.RemoveFilteredGroupingPolicy(0, "carol")
		r.must(err)
		look("one less")
		r.see("save a part", filtered.SavePolicy())
	})
}

func TestCasbinTransaction(t *testing.T) {
	same(t, func(r *run) {
		e, loader := r.enforcer(), r.enforcer()
		adapter := e.GetAdapter().(*gormadapter.Adapter)
		change := func(fail bool) error {
			return adapter.Transaction(e, func(tx casbin.IEnforcer) error {
				if _, err := tx.AddPolicy("alice", "orders", "read"); err != nil {
					return err
				}
				if _, err := tx.AddGroupingPolicy("carol", "alice"); err != nil {
					return err
				}
				r.casbinState("inside, seen from outside", loader, loader)
				if fail {
					return errors.New("on second thoughts")
				}
				return nil
			})
		}
		r.casbinState("before", e, loader)
		r.see("rolled back", change(true))
		r.casbinState("rolled back", e, loader)
		r.see("committed", change(false))
		r.casbinState("committed", e, loader)
	})
}

func TestCasbinAtOnce(t *testing.T) {
	same(t, func(r *run) {
		const writers, rules = 4, 15
		var enforcers []*casbin.Enforcer
		for range writers {
			enforcers = append(enforcers, r.enforcer())
		}
		var wg sync.WaitGroup
		for i, e := range enforcers {
			wg.Go(func() {
				for n := range rules {
					obj := fmt.Sprint(i, "/", n)
					if _, err := e.AddPolicy("alice", obj, "read"); err != nil {
						r.Errorf("add: %v", err)
					}
					if n%3 == 0 {
						if _, err := e.RemovePolicy("alice", obj, "read"); err != nil {
							r.Errorf("remove: %v", err)
						}
					}
					if err := e.LoadPolicy(); err != nil {
						r.Errorf("load: %v", err)
					}
					if ok, err := e.Enforce("alice", obj, "read"); err != nil || ok != (n%3 != 0) {
						r.Errorf("alice may read %s: %v, %v", obj, ok, err)
					}
				}
			})
		}
		wg.Wait()
		for _, e := range enforcers {
			r.must(e.LoadPolicy())
			policy, err := e.GetPolicy()
			slices.SortFunc(policy, slices.Compare[[]string])
			r.see("policy", policy, err)
		}
		r.exec(`TRUNCATE casbin_rule`)
	})
}
