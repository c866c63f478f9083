package compat

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/coalesce-pgx/coalesce"
)

// gormSavePoint is the random name that GORM gives to a save point.
var gormSavePoint = regexp.MustCompile(`SAVEPOINT sp\d+`)

// gormLog records every statement of GORM's with its outcome. A step that
// reads at once from several goroutines has to be silent.
type gormLog struct{ r *run }

func (l gormLog) LogMode(logger.LogLevel) logger.Interface { return l }
func (l gormLog) Info(context.Context, string, ...any)     {}
func (l gormLog) Warn(_ context.Context, f string, args ...any) {
	l.r.see("gorm warns " + fmt.Sprintf(f, args...))
}
func (l gormLog) Error(_ context.Context, f string, args ...any) {
	l.r.see("gorm reports " + fmt.Sprintf(f, args...))
}
func (l gormLog) Trace(_ context.Context, _ time.Time, f func() (string, int64), err error) {
	statement, rows := f()
	// In the label, which shows no length: that of a time varies.
	l.r.see("gorm "+gormSavePoint.ReplaceAllString(statement, "SAVEPOINT sp"), rows, err)
}

func gormOpen(r *run, pg postgres.Config, config gorm.Config) *gorm.DB {
	r.Helper()
	if config.Logger == nil {
		config.Logger = gormLog{r}
	}
	db, err := gorm.Open(postgres.New(pg), &config)
	r.must(err)
	if pg.Conn == nil {
		pool, err := db.DB()
		r.must(err)
		r.Cleanup(func() { pool.Close() })
		r.watch(pool)
	}
	return db
}

// seeGorm records what a finished GORM call tells.
func seeGorm(r *run, what string, tx *gorm.DB, values ...any) {
	r.Helper()
	r.see(what, append([]any{tx.Error, tx.RowsAffected, errors.Is(tx.Error, gorm.ErrRecordNotFound)}, values...)...)
}

type gormCompany struct {
	ID   uint   `gorm:"primaryKey"`
	Name string `gorm:"size:40;uniqueIndex"`
}

type gormUser struct {
	gorm.Model
	Name      string  `gorm:"size:64;not null;index:idx_name_age"`
	Age       int     `gorm:"index:idx_name_age;check:age >= 0"`
	Balance   float64 `gorm:"type:numeric(12,2);default:0"`
	Active    bool    `gorm:"default:true"`
	Nick      *string
	Version   int          `gorm:"not null;default:1"`
	CompanyID *uint        // belongs to
	Company   *gormCompany `gorm:"constraint:OnDelete:SET NULL"`
	Account   gormAccount  `gorm:"foreignKey:UserID;constraint:OnDelete:CASCADE"`
	Orders    []gormOrder  `gorm:"foreignKey:UserID;constraint:OnDelete:CASCADE"`
	Langs     []gormLang   `gorm:"many2many:gorm_speaks;constraint:OnDelete:CASCADE"`
}

type gormAccount struct {
	ID     uint
	UserID uint `gorm:"index"`
	Number string
}

type gormOrder struct {
	ID     uint
	UserID uint
	Item   string
	Price  int64
	Lines  []gormLine `gorm:"foreignKey:OrderID;constraint:OnDelete:CASCADE"`
}

type gormLine struct {
	ID      uint
	OrderID uint
	Text    string
}

type gormLang struct {
	Code string `gorm:"primaryKey;size:8"`
	Name string
}

func gormSchema(r *run, db *gorm.DB) {
	r.Helper()
	// GORM puts the constraints of a table in no order.
	db = db.Session(&gorm.Session{Logger: logger.Discard})
	r.must(db.AutoMigrate(&gormCompany{}, &gormUser{}, &gormAccount{}, &gormOrder{}, &gormLine{}, &gormLang{}))
}

func gormUsers(n int) []gormUser {
	list := make([]gormUser, n)
	for i := range list {
		list[i] = gormUser{Name: fmt.Sprintf("user%02d", i), Age: 20 + i%5, Balance: float64(i) * 1.25}
	}
	return list
}

// gormWays is the ways in which programs open GORM; each has tables of its own
// in the database of the run.
func gormWays(r *run, f func(way string, db *gorm.DB)) {
	byName := func(dsn string) postgres.Config { return postgres.Config{DriverName: r.driver, DSN: dsn} }
	for _, w := range []struct {
		name   string
		pg     postgres.Config
		config gorm.Config
	}{
		{"plain_", postgres.Config{Conn: r.db}, gorm.Config{}},
		{"prepared_", postgres.Config{Conn: r.db}, gorm.Config{PrepareStmt: true}},
		{"skipping_", postgres.Config{Conn: r.db}, gorm.Config{SkipDefaultTransaction: true, DisableNestedTransaction: true, TranslateError: true}},
		{"quick_", postgres.Config{Conn: r.db}, gorm.Config{SkipDefaultTransaction: true, PrepareStmt: true, QueryFields: true, CreateBatchSize: 2}},
		{"simple_", byName(r.dsn + "&default_query_exec_mode=simple_protocol"), gorm.Config{SkipDefaultTransaction: true}},
		{"zoned_", byName(r.dsn + "&default_query_exec_mode=exec&TimeZone=Asia/Tokyo"), gorm.Config{}},
	} {
		w.config.NamingStrategy = schema.NamingStrategy{TablePrefix: w.name}
		f(w.name, gormOpen(r, w.pg, w.config))
	}
}

func TestGormCreatesReadsUpdatesDeletes(t *testing.T) {
	same(t, func(r *run) {
		gormWays(r, func(way string, db *gorm.DB) {
			r.see(way)
			gormSchema(r, db)
			look := func(after string) {
				r.Helper()
				var all []gormUser
				seeGorm(r, after+": all", db.Order("id").Find(&all), all)
				var n int64
				seeGorm(r, after+": count", db.Model(&gormUser{}).Count(&n), n)
				var first gormUser
				seeGorm(r, after+": first", db.First(&first), first)
				var unscoped []string
				seeGorm(r, after+": unscoped", db.Unscoped().Model(&gormUser{}).Order("id").Pluck("name", &unscoped), unscoped)
			}
			look("nothing")

			u := gormUser{Name: "ann", Age: 30, Balance: 12.5}
			seeGorm(r, "create", db.Create(&u), u.ID, u.Active, u.Version)
			look("create")
			list := gormUsers(5)
			seeGorm(r, "create many", db.Create(&list), list[4].ID)
			look("create many")
			list = gormUsers(7)
			seeGorm(r, "create in batches", db.CreateInBatches(&list, 3), list[6].ID)
			look("create in batches")
			seeGorm(r, "create of a map", db.Model(&gormUser{}).Create(map[string]any{"name": "map", "age": 3, "nick": clause.Expr{SQL: "upper(?)", Vars: []any{"m"}}}))
			look("create of a map")
			seeGorm(r, "create selected", db.Select("Name", "Age").Create(&gormUser{Name: "sel", Age: 1, Balance: 99}))
			look("create selected")

			// Each of these is a read that came just before, too.
			var loaded gormUser
			seeGorm(r, "load", db.First(&loaded, u.ID), loaded)
			nick := "nick"
			loaded.Nick, loaded.Age = &nick, 0
			seeGorm(r, "save", db.Save(&loaded))
			var again gormUser
			seeGorm(r, "load", db.First(&again, u.ID), again)
			seeGorm(r, "update", db.Model(&again).Update("name", "bob"), again)
			again = gormUser{}
			seeGorm(r, "load", db.First(&again, u.ID), again)
			seeGorm(r, "updates by struct", db.Model(&again).Updates(gormUser{Name: "carl", Age: 0, Balance: 3}), again)
			look("updates by struct")
			seeGorm(r, "updates by map", db.Model(&again).Updates(map[string]any{"age": 41, "nick": nil, "active": false}), again)
			look("updates by map")
			seeGorm(r, "updates by expression", db.Model(&again).Updates(map[string]any{"age": gorm.Expr("age * ? + ?", 2, 1), "balance": gorm.Expr("(SELECT max(balance) FROM " + way + "gorm_users)")}), again.Age)
			look("updates by expression")
			seeGorm(r, "update column", db.Model(&again).UpdateColumn("age", gorm.Expr("age + 1")))
			look("update column")
			seeGorm(r, "update of many", db.Model(&gormUser{}).Where("age < ?", 22).Updates(map[string]any{"nick": "young"}))
			look("update of many")
			seeGorm(r, "update of all", db.Model(&gormUser{}).Update("age", 1))
			seeGorm(r, "save of one that is not there", db.Save(&gormUser{Model: gorm.Model{ID: 1000}, Name: "thousand", Version: 1}))
			look("save of one that is not there")

			// Nobody else's change is lost: the version has to be the one read.
			for range 2 {
				seeGorm(r, "optimistic", db.Model(&gormUser{}).Where("id = ? AND version = ?", u.ID, 1).
					Updates(map[string]any{"balance": 7, "version": gorm.Expr("version + 1")}))
				var v int
				seeGorm(r, "version", db.Model(&gormUser{}).Select("version").Where("id = ?", u.ID).Scan(&v), v)
			}

			var or gormUser
			for range 2 {
				or = gormUser{}
				seeGorm(r, "first or init", db.Where(gormUser{Name: "eve"}).Attrs(gormUser{Age: 9}).FirstOrInit(&or), or)
			}
			for range 2 {
				or = gormUser{}
				seeGorm(r, "first or create", db.Where(gormUser{Name: "eve"}).Attrs(gormUser{Age: 9}).FirstOrCreate(&or), or)
				look("first or create")
			}
			or = gormUser{}
			seeGorm(r, "first or create, assigned", db.Where(gormUser{Name: "eve"}).Assign(gormUser{Age: 10}).FirstOrCreate(&or), or)
			look("first or create, assigned")

			var deleted []gormUser
			seeGorm(r, "delete", db.Delete(&gormUser{}, u.ID))
			look("delete")
			seeGorm(r, "delete returning", db.Clauses(clause.Returning{Columns: []clause.Column{{Name: "id"}, {Name: "name"}}}).Where("name LIKE ?", "user0%").Delete(&deleted), deleted)
			look("delete returning")
			seeGorm(r, "delete for good", db.Unscoped().Delete(&gormUser{}, "name = ?", "user01"))
			look("delete for good")
			seeGorm(r, "restore", db.Unscoped().Model(&gormUser{}).Where("deleted_at IS NOT NULL").Update("deleted_at", nil))
			look("restore")
			var updated []gormUser
			seeGorm(r, "update returning", db.Model(&updated).Clauses(clause.Returning{}).Where("name LIKE ?", "user%").Update("age", gorm.Expr("age + 1")), updated)
			look("update returning")

			companies := []gormCompany{{Name: "one"}, {Name: "two"}}
			seeGorm(r, "companies", db.Create(&companies), companies)
			upserts := []struct {
				name string
				do   clause.OnConflict
			}{
				{"nothing", clause.OnConflict{DoNothing: true}},
				{"columns", clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.AssignmentColumns([]string{"name"})}},
				{"expression", clause.OnConflict{Columns: []clause.Column{{Name: "id"}}, DoUpdates: clause.Assignments(map[string]any{"name": gorm.Expr("excluded.name || '!'")})}},
				{"all", clause.OnConflict{UpdateAll: true}},
			}
			for i, up := range upserts {
				seeGorm(r, "upsert "+up.name, db.Clauses(up.do).Create(&gormCompany{ID: 1, Name: fmt.Sprint("name", i)}))
				var cs []gormCompany
				seeGorm(r, "upsert "+up.name, db.Order("id").Find(&cs), cs)
			}
			r.see("way done: "+way, db.Exec("TRUNCATE "+way+"gorm_users CASCADE").Error)
			look("truncate")
		})
	})
}

func TestGormAssociates(t *testing.T) {
	same(t, func(r *run) {
		db := gormOpen(r, postgres.Config{Conn: r.db}, gorm.Config{})
		gormSchema(r, db)
		langs := []gormLang{{"de", "German"}, {"en", "English"}, {"fr", "French"}, {"it", "Italian"}}
		r.must(db.Create(&langs).Error)
		for i := range 3 {
			u := gormUsers(3)[i]
			u.Company = &gormCompany{Name: fmt.Sprint("company", i)}
			u.Account = gormAccount{Number: fmt.Sprint("number", i)}
			u.Orders = []gormOrder{
				{Item: "pen", Price: int64(i), Lines: []gormLine{{Text: "blue"}, {Text: "red"}}},
				{Item: "ink", Price: 10},
			}
			u.Langs = langs[:i+1]
			r.must(db.Create(&u).Error)
		}
		look := func(after string) {
			r.Helper()
			var all []gormUser
			seeGorm(r, after+": preload", db.Preload("Orders.Lines", func(tx *gorm.DB) *gorm.DB { return tx.Order("id DESC") }).
				Preload(clause.Associations).Preload("Langs", "code <> ?", "it").Order("id").Find(&all), all)
			all = nil
			seeGorm(r, after+": joins", db.Joins("Company").InnerJoins("Account").Order("gorm_users.id").Find(&all), all)
			all = nil
			seeGorm(r, after+": joins on", db.Joins("LEFT JOIN gorm_orders o ON o.user_id = gorm_users.id AND o.item = ?", "pen").
				Where("o.price > ?", 0).Distinct().Order("gorm_users.id").Find(&all), all)
			all = nil
			seeGorm(r, after+": joins a query", db.Joins("Account", db.Where(&gormAccount{Number: "number1"})).Order("gorm_users.id").Find(&all), all)
		}
		look("created")
		look("nothing")

		var u gormUser
		r.must(db.First(&u).Error)
		orders := func() *gorm.Association { return db.Model(&u).Association("Orders") }
		spoken := func() *gorm.Association { return db.Model(&u).Association("Langs") }
		count := func(after string) {
			r.Helper()
			var os []gormOrder
			var ls []gormLang
			r.see(after, orders().Count(), spoken().Count(), orders().Find(&os), os, spoken().Find(&ls, "name <> ''"), ls)
			look(after)
		}
		count("before")
		r.see("append orders", orders().Append(&gormOrder{Item: "cap", Price: 5}))
		count("append orders")
		r.see("append langs", spoken().Append(&langs[2], &gormLang{Code: "ru", Name: "Russian"}))
		count("append langs")
		r.see("replace langs", spoken().Replace(&langs[1], &langs[3]))
		count("replace langs")
		r.see("delete langs", spoken().Delete(&langs[3]))
		count("delete langs")
		r.see("clear langs", spoken().Clear())
		count("clear langs")
		r.see("replace account", db.Model(&u).Association("Account").Unscoped().Replace(&gormAccount{Number: "another"}))
		count("replace account")
		r.see("replace company", db.Model(&u).Association("Company").Replace(&gormCompany{Name: "late"}))
		count("replace company")
		r.see("clear company", db.Model(&u).Association("Company").Clear())
		count("clear company")
		r.see("unscoped replace", orders().Unscoped().Replace([]gormOrder{{Item: "last"}}))
		count("unscoped replace")

		var full gormUser
		r.must(db.Preload("Orders").First(&full, 2).Error)
		full.Orders[0].Price = 1234
		seeGorm(r, "save associations", db.Session(&gorm.Session{FullSaveAssociations: true}).Save(&full))
		look("save associations")
		seeGorm(r, "delete with langs", db.Select("Langs").Delete(&full))
		look("delete with langs")
		seeGorm(r, "delete with account", db.Select("Account").Delete(&u))
		look("delete with account")
		// These go by foreign keys: no statement names the tables.
		seeGorm(r, "cascade", db.Unscoped().Delete(&gormUser{}, 3))
		look("cascade")
		seeGorm(r, "set null", db.Where("name = ?", "company0").Delete(&gormCompany{}))
		look("set null")
	})
}

// gormHooked has a hook of each kind; some of them ask the database.
type gormHooked struct {
	ID     uint
	Name   string
	Seen   int64  // how many there were when it was created
	Found  string `gorm:"-"`
	Reject bool   `gorm:"-"`
}

func (h *gormHooked) count(tx *gorm.DB) (n int64, err error) {
	err = tx.Session(&gorm.Session{NewDB: true}).Model(&gormHooked{}).Count(&n).Error
	return n, err
}

func (h *gormHooked) BeforeCreate(tx *gorm.DB) (err error) {
	h.Seen, err = h.count(tx)
	return err
}

func (h *gormHooked) AfterCreate(tx *gorm.DB) error {
	n, err := h.count(tx)
	if err != nil {
		return err
	}
	h.Found = fmt.Sprint(n, " after create")
	if h.Reject {
		return errors.New("rejected by the hook")
	}
	return tx.Session(&gorm.Session{NewDB: true}).Exec("INSERT INTO gorm_logs (text) VALUES (?)", "created "+h.Name).Error
}

func (h *gormHooked) BeforeSave(tx *gorm.DB) error {
	tx.Statement.SetColumn("name", h.Name+"+")
	return nil
}

func (h *gormHooked) BeforeUpdate(tx *gorm.DB) error {
	if tx.Statement.Changed("Seen") {
		return errors.New("nobody may change what was seen")
	}
	return nil
}

func (h *gormHooked) AfterFind(tx *gorm.DB) error {
	n, err := h.count(tx)
	h.Found = fmt.Sprint(n, " after find")
	return err
}

func (h *gormHooked) BeforeDelete(tx *gorm.DB) error {
	if h.ID == 1 {
		return errors.New("the first one stays")
	}
	return nil
}

func TestGormRunsHooks(t *testing.T) {
	same(t, func(r *run) {
		for _, config := range []gorm.Config{{}, {PrepareStmt: true}, {SkipDefaultTransaction: true}} {
			r.exec(`DROP TABLE IF EXISTS gorm_hookeds, gorm_logs`, `CREATE TABLE gorm_logs (id serial PRIMARY KEY, text text)`)
			db := gormOpen(r, postgres.Config{Conn: r.db}, config)
			r.must(db.AutoMigrate(&gormHooked{}))
			look := func(after string) {
				r.Helper()
				var all []gormHooked
				seeGorm(r, after, db.Order("id").Find(&all), all)
				var texts []string
				seeGorm(r, after, db.Table("gorm_logs").Order("id").Pluck("text", &texts), texts)
			}
			look("nothing")
			list := []gormHooked{{Name: "a"}, {Name: "b"}}
			seeGorm(r, "create", db.Create(&list), list)
			look("create")
			bad := gormHooked{Name: "c", Reject: true}
			seeGorm(r, "rejected", db.Create(&bad), bad)
			look("rejected")
			seeGorm(r, "update", db.Model(&list[0]).Update("name", "z"), list[0])
			look("update")
			seeGorm(r, "refused update", db.Model(&list[0]).Updates(map[string]any{"seen": 9}))
			seeGorm(r, "refused delete", db.Delete(&list[0]))
			seeGorm(r, "delete", db.Delete(&list[1]))
			look("delete")
			seeGorm(r, "without hooks", db.Session(&gorm.Session{SkipHooks: true}).Create(&gormHooked{Name: "d"}))
			look("without hooks")
		}
	})
}

func TestGormTransacts(t *testing.T) {
	same(t, func(r *run) {
		gormWays(r, func(way string, db *gorm.DB) {
			r.see(way)
			r.must(db.AutoMigrate(&gormCompany{}))
			look := func(what string, db *gorm.DB) {
				r.Helper()
				var names []string
				seeGorm(r, what, db.Model(&gormCompany{}).Order("name").Pluck("name", &names), names)
			}
			create := func(tx *gorm.DB, name string) error { return tx.Create(&gormCompany{Name: name}).Error }
			wrong := errors.New("wrong")
			look("empty", db)
			r.see("committed", db.Transaction(func(tx *gorm.DB) error {
				err := create(tx, "a")
				look("inside", tx)
				look("outside", db)
				return err
			}))
			look("committed", db)
			r.see("rolled back", db.Transaction(func(tx *gorm.DB) error {
				r.must(create(tx, "b"))
				look("inside", tx)
				return wrong
			}))
			look("rolled back", db)
			r.see("nested", db.Transaction(func(tx *gorm.DB) error {
				r.must(create(tx, "c"))
				r.see("inner", tx.Transaction(func(tx *gorm.DB) error {
					r.must(create(tx, "d"))
					look("inner", tx)
					r.see("innermost", tx.Transaction(func(tx *gorm.DB) error { return create(tx, "e") }))
					look("inner", tx)
					return wrong
				}))
				look("after inner", tx)
				return tx.Transaction(func(tx *gorm.DB) error { return create(tx, "f") })
			}))
			look("nested", db)
			r.see("failed inside", db.Transaction(func(tx *gorm.DB) error {
				r.see("duplicate", create(tx, "a"))
				look("in a failed transaction", tx)
				return nil
			}))
			look("failed inside", db)
			r.see("recovered", db.Transaction(func(tx *gorm.DB) error {
				r.see("duplicate", tx.Transaction(func(tx *gorm.DB) error { return create(tx, "a") }))
				look("recovered", tx)
				return create(tx, "g")
			}))
			look("recovered", db)
			r.see("panicked", func() (v any) {
				defer func() { v = recover() }()
				return db.Transaction(func(tx *gorm.DB) error {
					r.must(create(tx, "h"))
					panic("panic inside")
				})
			}())
			look("panicked", db)

			tx := db.Begin(&sql.TxOptions{Isolation: sql.LevelRepeatableRead})
			look("begun", tx)
			r.must(create(db, "i"))
			look("snapshot", tx)
			look("outside", db)
			seeGorm(r, "save point", tx.SavePoint("one"))
			r.see("create", create(tx, "j"))
			look("after the save point", tx)
			seeGorm(r, "roll back to", tx.RollbackTo("one"))
			look("rolled back to", tx)
			r.see("create", create(tx, "k"))
			seeGorm(r, "commit", tx.Commit())
			look("committed", db)
			seeGorm(r, "committed twice", tx.Commit())
			seeGorm(r, "used after the end", tx.Create(&gormCompany{Name: "l"}))
			tx = db.Begin(&sql.TxOptions{ReadOnly: true})
			look("read only", tx)
			r.see("read only", create(tx, "m"))
			seeGorm(r, "rollback", tx.Rollback())
			look("rolled back", db)
			r.see("disabled nesting", db.Session(&gorm.Session{DisableNestedTransaction: true}).Transaction(func(tx *gorm.DB) error {
				return tx.Transaction(func(tx *gorm.DB) error { return create(tx, "n") })
			}))
			look("disabled nesting", db)
			pool, err := db.DB()
			r.must(err)
			r.inChangedSession(pool, func() {
				r.see("one connection", db.Connection(func(tx *gorm.DB) error {
					r.must(tx.Exec("SET search_path = public, pg_catalog").Error)
					look("one connection", tx)
					r.must(create(tx, "o"))
					look("one connection", tx)
					return tx.Exec("RESET search_path").Error
				}))
				look("one connection", db)
			})
			renew(pool) // the next way may have the same one
			look("another connection", db)
		})
	})
}

func TestGormQueries(t *testing.T) {
	same(t, func(r *run) {
		for _, config := range []gorm.Config{{}, {PrepareStmt: true}, {AllowGlobalUpdate: true, QueryFields: true}} {
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			db := gormOpen(r, postgres.Config{Conn: r.db}, config)
			gormSchema(r, db)
			list := gormUsers(12)
			r.must(db.Create(&list).Error)
			look := func(after string) {
				r.Helper()
				r.see(after)
				var names []string
				seeGorm(r, "pluck", db.Model(&gormUser{}).Where("age IN ?", []int{20, 21}).Order("name DESC").Pluck("name", &names), names)
				var ages []int
				seeGorm(r, "distinct", db.Model(&gormUser{}).Distinct().Order("age").Pluck("age", &ages), ages)
				var groups []struct {
					Age   int
					N     int64
					Total float64
					Names pq.StringArray `gorm:"type:text[]"`
				}
				seeGorm(r, "group", db.Model(&gormUser{}).Select("age, count(*) AS n, sum(balance) AS total, array_agg(name ORDER BY name) AS names").
					Group("age").Having("count(*) > ?", 2).Order("age").Scan(&groups), groups)
				var n int64
				seeGorm(r, "count distinct", db.Model(&gormUser{}).Distinct("age").Count(&n), n)
				seeGorm(r, "count of groups", db.Model(&gormUser{}).Group("age").Count(&n), n)
				var found []gormUser
				seeGorm(r, "conditions", db.Where("name LIKE ?", "user%").Where(db.Where("age > ?", 22).Or("age < @low", sql.Named("low", 21))).
					Not("name = ?", "user09").Order("id").Limit(4).Offset(1).Find(&found), found)
				found = nil
				seeGorm(r, "by struct", db.Where(&gormUser{Age: 21}, "Age").Find(&found), len(found))
				found = nil
				seeGorm(r, "by map", db.Where(map[string]any{"age": []int{21, 23}}).Order("id").Find(&found), len(found))
				found = nil
				seeGorm(r, "by a query", db.Where("balance > (?)", db.Model(&gormUser{}).Select("avg(balance)")).Order("id").Find(&found), len(found))
				found = nil
				seeGorm(r, "from a query", db.Table("(?) AS u", db.Model(&gormUser{}).Where("age = ?", 20)).Order("id").Find(&found), len(found))
				var one gormUser
				seeGorm(r, "last", db.Last(&one), one.Name)
				one = gormUser{}
				seeGorm(r, "take", db.Where("name = ?", "user03").Take(&one), one.Name)
				one = gormUser{}
				seeGorm(r, "not found", db.First(&one, "name = ?", "nobody"))
				found = nil
				seeGorm(r, "none found", db.Find(&found, "name = ?", "nobody"), found)
				m := map[string]any{}
				seeGorm(r, "into a map", db.Model(&gormUser{}).Select("id", "name", "age", "balance", "active", "nick", "created_at").First(&m), m)
				var ms []map[string]any
				seeGorm(r, "into maps", db.Table("gorm_users").Select("id, name, balance, active").Order("id").Limit(2).Find(&ms), ms)
				var api []struct {
					ID   uint
					Name string
				}
				seeGorm(r, "into another struct", db.Model(&gormUser{}).Order("id").Limit(2).Find(&api), api)
				var raw []gormUser
				seeGorm(r, "raw", db.Raw("SELECT * FROM gorm_users WHERE age = @age AND name <> @name ORDER BY id", map[string]any{"age": 20, "name": "x"}).Scan(&raw), raw)
				var total float64
				seeGorm(r, "raw value", db.Raw("SELECT sum(balance) FROM gorm_users").Scan(&total), total)
				var maybe sql.NullString
				r.see("row", db.Raw("SELECT max(nick) FROM gorm_users").Row().Scan(&maybe), maybe)
				rows, err := db.Model(&gormUser{}).Where("age = ?", 21).Order("id").Rows()
				r.must(err)
				for rows.Next() {
					var u gormUser
					r.see("rows", db.ScanRows(rows, &u), u)
				}
				r.see("rows", rows.Err(), rows.Close())
				rows, err = db.Raw("SELECT id, name, age, created_at, balance FROM gorm_users ORDER BY id").Rows()
				r.rows("all columns", rows, err)
				found = nil
				seeGorm(r, "batches", db.Where("age < ?", 24).FindInBatches(&found, 4, func(tx *gorm.DB, batch int) error {
					r.see("batch", batch, len(found), found[0].Name)
					for i := range found {
						found[i].Version++
					}
					return tx.Save(&found).Error
				}))
				found = nil
				seeGorm(r, "batches stopped", db.FindInBatches(&found, 5, func(_ *gorm.DB, batch int) error {
					return fmt.Errorf("stopped in batch %d", batch)
				}))
				found = nil
				seeGorm(r, "scopes", db.Scopes(func(tx *gorm.DB) *gorm.DB { return tx.Where("age = 20") }, func(tx *gorm.DB) *gorm.DB { return tx.Order("id").Limit(1) }).Find(&found), found)
				for _, mode := range []gorm.Session{{PrepareStmt: true}, {QueryFields: true}, {SkipHooks: true, NewDB: true}, {DryRun: true}} {
					found = nil
					tx := db.Session(&mode).Order("id").Limit(2).Find(&found, "age = ?", 20)
					seeGorm(r, "session", tx, found, tx.Statement.SQL.String(), tx.Statement.Vars)
				}
				r.see("to SQL: " + db.ToSQL(func(tx *gorm.DB) *gorm.DB { return tx.Model(&gormUser{}).Where("id = ?", 1).Update("age", 5) }))
				typed, err := gorm.G[gormUser](db).Where("age = ?", 22).Order("id").Find(bg)
				r.see("generic", typed, err)
				counted, err := gorm.G[gormUser](db).Where("age = ?", 22).Count(bg, "*")
				r.see("generic count", counted, err)
			}
			look("created")
			look("nothing")
			changed, err := gorm.G[gormUser](db).Where("age = ?", 20).Update(bg, "name", "generic")
			r.see("generic update", changed, err)
			look("generic update")
			r.see("global update", db.Model(&gormUser{}).Update("active", false).Error, db.Delete(&gormUser{}).Error)
			look("global update")
			seeGorm(r, "raw insert", db.Exec("INSERT INTO gorm_users (name, age) SELECT 'more' || g, 20 + g FROM generate_series(1, ?) g", 3))
			look("raw insert")
			var ids []uint
			seeGorm(r, "raw returning", db.Raw("UPDATE gorm_users SET age = 22 WHERE name LIKE ? RETURNING id", "more%").Scan(&ids), ids)
			look("raw returning")
			seeGorm(r, "raw with", db.Raw("WITH d AS (DELETE FROM gorm_users WHERE age = 22 RETURNING id) SELECT count(*) FROM d").Scan(&ids), ids)
			look("raw with")
		}
	})
}

func TestGormLocksRows(t *testing.T) {
	same(t, func(r *run) {
		db := gormOpen(r, postgres.Config{Conn: r.db}, gorm.Config{PrepareStmt: true})
		gormSchema(r, db)
		list := gormUsers(3)
		r.must(db.Create(&list).Error)
		free := clause.Locking{Strength: clause.LockingStrengthUpdate, Options: clause.LockingOptionsSkipLocked}
		first := func(what string, tx *gorm.DB, lock clause.Locking) {
			r.Helper()
			var u gormUser
			seeGorm(r, what, tx.Clauses(lock).Order("id").First(&u), u.Name)
		}
		for range 2 {
			tx := db.Begin()
			first("locked", tx, free)
			first("skipped", db, free)
			first("not waited for", db, clause.Locking{Strength: clause.LockingStrengthShare, Options: clause.LockingOptionsNoWait})
			first("only read", db, clause.Locking{Strength: "KEY SHARE", Table: clause.Table{Name: clause.CurrentTable}, Options: "SKIP LOCKED"})
			seeGorm(r, "taken", tx.Model(&gormUser{}).Where("id = ?", 1).Update("age", gorm.Expr("age + 1")))
			var u gormUser
			seeGorm(r, "plain read", db.First(&u, 1), u.Age)
			r.must(tx.Commit().Error)
			u = gormUser{}
			seeGorm(r, "plain read", db.First(&u, 1), u.Age)
			first("free", db, free)
			first("free", db, free)
		}
	})
}

func TestGormReportsErrors(t *testing.T) {
	same(t, func(r *run) {
		for _, config := range []gorm.Config{{}, {TranslateError: true}, {TranslateError: true, PrepareStmt: true}} {
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			db := gormOpen(r, postgres.Config{Conn: r.db}, config)
			gormSchema(r, db)
			fail := func(what string, err error) {
				r.Helper()
				r.see(what, err)
				for _, is := range []error{gorm.ErrDuplicatedKey, gorm.ErrForeignKeyViolated, gorm.ErrCheckConstraintViolated,
					gorm.ErrRecordNotFound, gorm.ErrMissingWhereClause, gorm.ErrInvalidField} {
					r.see(is.Error(), errors.Is(err, is))
				}
			}
			count := func() {
				r.Helper()
				var n, m int64
				r.see("counts", db.Model(&gormCompany{}).Count(&n).Error, n, db.Model(&gormUser{}).Count(&m).Error, m)
			}
			count()
			r.must(db.Create(&gormCompany{Name: "one"}).Error)
			count()
			fail("unique", db.Create(&gormCompany{Name: "one"}).Error)
			fail("unique in a batch", db.CreateInBatches([]gormCompany{{Name: "two"}, {Name: "three"}, {Name: "one"}}, 2).Error)
			count()
			r.must(db.Create(&gormCompany{Name: "four"}).Error)
			fail("unique in an update", db.Model(&gormCompany{}).Where("name = ?", "four").Update("name", "one").Error)
			count()
			no := uint(99)
			fail("foreign key", db.Create(&gormUser{Name: "x", CompanyID: &no}).Error)
			fail("check", db.Create(&gormUser{Name: "x", Age: -1}).Error)
			fail("not null", db.Exec("INSERT INTO gorm_users (name) VALUES (NULL)").Error)
			count()
			var u gormUser
			for range 2 {
				fail("not found", db.First(&u, 77).Error)
				fail("no column", db.Where("nocolumn = 1").Find(&[]gormUser{}).Error)
				fail("no table", db.Table("nowhere").Find(&[]map[string]any{}).Error)
				fail("syntax", db.Raw("SELEC 1").Scan(&no).Error)
				fail("bad value", db.Where("id = ?", "abc").Find(&[]gormUser{}).Error)
				fail("division", db.Raw("SELECT 1/(id-1) FROM gorm_companies ORDER BY id DESC").Scan(&[]int{}).Error)
				fail("wrong type", db.Raw("SELECT name FROM gorm_companies").Scan(&[]int{}).Error)
			}
			fail("no condition", db.Delete(&gormUser{}).Error)
			gone, cancel := context.WithCancel(bg)
			cancel()
			fail("cancelled", db.WithContext(gone).First(&gormCompany{}).Error)
			fail("cancelled create", db.WithContext(gone).Create(&gormCompany{Name: "five"}).Error)
			fail("not cancelled", db.First(&gormCompany{}).Error)
			count()
		}
	})
}

// gormPoint is a type of the program's own.
type gormPoint struct{ X, Y int }

func (p gormPoint) Value() (driver.Value, error) { return fmt.Sprintf("(%d,%d)", p.X, p.Y), nil }

func (p *gormPoint) Scan(src any) error {
	_, err := fmt.Sscanf(fmt.Sprint(src), "(%d,%d)", &p.X, &p.Y)
	return err
}

type gormDoc struct{ data map[string]any }

func (gormDoc) GormDataType() string { return "jsonb" }

func (d gormDoc) Value() (driver.Value, error) {
	// As text: the simple protocol makes bytea of bytes.
	b, err := json.Marshal(d.data)
	return string(b), err
}

func (d *gormDoc) Scan(src any) error {
	switch src := src.(type) {
	case []byte:
		return json.Unmarshal(src, &d.data)
	case string:
		return json.Unmarshal([]byte(src), &d.data)
	}
	return fmt.Errorf("a document of type %T", src)
}

type gormTyped struct {
	Key      string `gorm:"type:uuid;primaryKey;default:gen_random_uuid()"`
	N        int    `gorm:"autoIncrement"`
	Doc      gormDoc
	Settings map[string]string `gorm:"serializer:json;type:jsonb"`
	Secret   []string          `gorm:"serializer:gob;type:bytea"`
	Tags     pq.StringArray    `gorm:"type:text[]"`
	Numbers  pq.Int64Array     `gorm:"type:bigint[]"`
	Point    gormPoint         `gorm:"type:point"`
	Blob     []byte
	Small    int16
	Big      uint64
	Ratio    float32
	Money    string `gorm:"type:numeric(20,4)"`
	Day      time.Time
	Date     time.Time `gorm:"type:date"`
	Local    time.Time `gorm:"type:timestamp"`
	Unix     int64     `gorm:"serializer:unixtime;type:timestamptz"`
	Maybe    *time.Time
	NullInt  sql.NullInt64
	NullTime sql.NullTime
	Null     sql.Null[string]
	Took     time.Duration
	Sum      int   `gorm:"->;type:int GENERATED ALWAYS AS (small * 2) STORED"`
	Made     int64 `gorm:"autoCreateTime:milli"`
}

func TestGormKeepsTypes(t *testing.T) {
	same(t, func(r *run) {
		for _, pg := range []postgres.Config{
			{Conn: r.db}, {DriverName: r.driver, DSN: r.dsn},
			{DriverName: r.driver, DSN: r.dsn + "&default_query_exec_mode=simple_protocol"},
			{DriverName: r.driver, DSN: r.dsn + "&TimeZone=Asia/Tokyo"},
		} {
			r.exec(`DROP TABLE IF EXISTS gorm_typeds`)
			// What the statements say has the keys in it.
			db := gormOpen(r, pg, gorm.Config{Logger: logger.Discard})
			r.must(db.AutoMigrate(&gormTyped{}))
			at := time.Date(2024, 2, 29, 12, 30, 15, 123456000, time.FixedZone("", 3600))
			look := func(after string) {
				r.Helper()
				for range 2 {
					var all []gormTyped
					tx := db.Order("n").Find(&all)
					for i := range all {
						all[i].Key, all[i].Made = "", 0
					}
					seeGorm(r, after, tx, all)
					var maps []map[string]any
					tx = db.Table("gorm_typeds").Order("n").Find(&maps)
					for _, m := range maps {
						delete(m, "key")
						delete(m, "made")
					}
					seeGorm(r, after, tx, maps)
				}
			}
			look("nothing")
			full := gormTyped{
				Doc: gormDoc{map[string]any{"a": []any{1.0, "b"}}}, Settings: map[string]string{"k": "v"}, Secret: []string{"s"},
				Tags: pq.StringArray{"a b", `"c"`, "", "NULL"}, Numbers: pq.Int64Array{1, -2}, Point: gormPoint{3, -4},
				Blob: []byte{0, 1, 0xff}, Small: 7, Big: 1 << 62, Ratio: 0.1, Money: "12345678901234.5678",
				Day: at, Date: at, Local: at, Unix: at.Unix(), Maybe: &at, NullInt: sql.NullInt64{Int64: 5, Valid: true},
				NullTime: sql.NullTime{Time: at, Valid: true}, Null: sql.Null[string]{V: "here", Valid: true}, Took: time.Minute,
			}
			seeGorm(r, "create", db.Create(&full), full.N, full.Sum)
			look("create")
			var loaded gormTyped
			tx := db.First(&loaded, "key = ?", full.Key)
			r.see("the same key", loaded.Key == full.Key, loaded.Made == full.Made)
			loaded.Key, loaded.Made = "", 0
			seeGorm(r, "load", tx, loaded)
			empty := gormTyped{Money: "0"}
			seeGorm(r, "create an empty one", db.Create(&empty), empty.N)
			look("create an empty one")
			seeGorm(r, "update", db.Model(&full).Updates(gormTyped{Tags: pq.StringArray{"new"}, Doc: gormDoc{map[string]any{"b": nil}}, Small: 8, Date: at.AddDate(0, 0, 1)}))
			look("update")
			for range 2 {
				var n int64
				seeGorm(r, "by document", db.Model(&gormTyped{}).Where("doc @> ?", gormDoc{map[string]any{"b": nil}}).Count(&n), n)
				seeGorm(r, "by document text", db.Model(&gormTyped{}).Where("settings->>'k' = ?", "v").Count(&n), n)
				seeGorm(r, "by array", db.Model(&gormTyped{}).Where("? = ANY(tags)", "new").Count(&n), n)
				seeGorm(r, "by arrays", db.Model(&gormTyped{}).Where("numbers && ?", pq.Int64Array{-2}).Count(&n), n)
				seeGorm(r, "by time", db.Model(&gormTyped{}).Where("day = ?", at).Count(&n), n)
				seeGorm(r, "by time elsewhere", db.Model(&gormTyped{}).Where("day = ?", at.UTC()).Count(&n), n)
				seeGorm(r, "by bytes", db.Model(&gormTyped{}).Where("blob = ?", []byte{0, 1, 0xff}).Count(&n), n)
				seeGorm(r, "by now", db.Model(&gormTyped{}).Where("day < now()").Count(&n), n)
				r.must(db.Model(&gormTyped{}).Where("small = ?", 8).Updates(map[string]any{"settings": gorm.Expr("settings || ?", `{"k":"w"}`), "numbers": pq.Int64Array{9}, "day": at.Add(time.Hour)}).Error)
			}
			look("more updates")
			r.exec(`UPDATE gorm_typeds SET made = 0, key = lpad(n::text, 32, '0')::uuid`)
		}
	})
}

func TestGormMigrates(t *testing.T) {
	same(t, func(r *run) {
		for _, w := range []struct {
			name   string
			pg     postgres.Config
			config gorm.Config
		}{
			{"conn", postgres.Config{Conn: r.db}, gorm.Config{}},
			{"simple protocol", postgres.Config{DriverName: r.driver, DSN: r.dsn + "&default_query_exec_mode=simple_protocol"}, gorm.Config{Logger: logger.Discard}},
		} {
			r.see(w.name)
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			gormMigrates(r, gormOpen(r, w.pg, w.config))
		}
	})
}

func gormMigrates(r *run, db *gorm.DB) {
	type Item struct {
		ID    uint
		Name  string `gorm:"size:20"`
		Price float64
	}
	type ItemLater struct {
		ID      uint
		Name    string    `gorm:"size:80;not null;default:'none';index:idx_items_name;comment:what it is called"`
		Price   float64   `gorm:"type:numeric(10,2)"`
		Code    *string   `gorm:"size:10;uniqueIndex"`
		Made    time.Time `gorm:"default:now()"`
		Weight  int32     `gorm:"check:weighty,weight > 0;default:1"`
		Retired bool
	}
	type Row = map[string]any
	m := db.Migrator()
	look := func(after string) {
		r.Helper()
		r.see(after)
		var rows []Row
		seeGorm(r, "rows", db.Table("items").Order("id").Find(&rows), rows)
		var items []Item
		seeGorm(r, "items", db.Table("items").Order("id").Find(&items), items)
		r.see("has", m.HasTable("items"), m.HasColumn("items", "code"), m.HasColumn("items", "label"))
	}
	inspect := func(after string) {
		r.Helper()
		look(after)
		tables, err := m.GetTables()
		slices.Sort(tables)
		r.see("tables", tables, err, m.CurrentDatabase())
		types, err := m.ColumnTypes("items")
		r.see("column types", err)
		for _, c := range types {
			full, _ := c.ColumnType()
			pk, _ := c.PrimaryKey()
			auto, _ := c.AutoIncrement()
			length, hasLength := c.Length()
			precision, scale, sized := c.DecimalSize()
			null, _ := c.Nullable()
			unique, _ := c.Unique()
			comment, commented := c.Comment()
			def, hasDef := c.DefaultValue()
			r.see("column type", c.Name(), c.DatabaseTypeName(), full, pk, auto, length, hasLength, precision, scale, sized,
				null, unique, fmt.Sprint(c.ScanType()), comment, commented, def, hasDef)
		}
		indexes, err := m.GetIndexes("items")
		r.see("indexes", err, len(indexes))
		slices.SortFunc(indexes, func(a, b gorm.Index) int { return strings.Compare(a.Name(), b.Name()) })
		for _, i := range indexes {
			pk, _ := i.PrimaryKey()
			unique, _ := i.Unique()
			r.see("index", i.Table(), i.Name(), i.Columns(), pk, unique, i.Option())
		}
	}
	look("nothing")
	for range 2 {
		r.see("migrate", db.Table("items").AutoMigrate(&Item{}))
		inspect("migrate")
	}
	r.must(db.Table("items").Create(&[]Item{{Name: "a", Price: 1.5}, {Name: "b", Price: 2.25}}).Error)
	look("create")
	for range 2 {
		r.see("migrate later", db.Table("items").AutoMigrate(&ItemLater{}))
		inspect("migrate later")
	}
	var later []ItemLater
	seeGorm(r, "later", db.Table("items").Order("id").Find(&later), later)
	code := "x"
	seeGorm(r, "create later", db.Table("items").Create(&ItemLater{Name: "c", Code: &code}))
	look("create later")
	later = nil
	seeGorm(r, "later", db.Table("items").Order("id").Find(&later), later)

	on := db.Table("items").Migrator()
	r.see("rename column", on.RenameColumn(&ItemLater{}, "code", "label"))
	inspect("rename column")
	r.see("rename back", on.RenameColumn(&ItemLater{}, "label", "code"))
	look("rename back")
	r.see("drop column", on.DropColumn(&ItemLater{}, "Retired"), on.HasColumn(&ItemLater{}, "Retired"))
	look("drop column")
	r.see("add column", on.AddColumn(&ItemLater{}, "Retired"), on.HasColumn(&ItemLater{}, "Retired"))
	inspect("add column")
	r.see("alter by hand", db.Exec(`ALTER TABLE items ALTER price TYPE text`).Error)
	inspect("alter by hand")
	r.see("alter column", on.AlterColumn(&ItemLater{}, "Price"))
	inspect("alter column")
	r.see("drop index", on.HasIndex(&ItemLater{}, "idx_items_name"), on.DropIndex(&ItemLater{}, "idx_items_name"), on.HasIndex(&ItemLater{}, "idx_items_name"))
	look("drop index")
	r.see("create index", on.CreateIndex(&ItemLater{}, "Name"), on.HasIndex(&ItemLater{}, "idx_items_name"))
	r.see("rename index", on.RenameIndex(&ItemLater{}, "idx_items_name", "idx_renamed"), on.HasIndex(&ItemLater{}, "idx_renamed"))
	inspect("rename index")
	r.see("drop constraint", on.HasConstraint(&ItemLater{}, "weighty"), on.DropConstraint(&ItemLater{}, "weighty"), on.HasConstraint(&ItemLater{}, "weighty"))
	r.see("create constraint", on.CreateConstraint(&ItemLater{}, "weighty"), on.HasConstraint(&ItemLater{}, "weighty"))
	look("constraint")
	dear := db.Table("items").Where("price > ?", 2)
	r.see("view", m.CreateView("dear", gorm.ViewOption{Query: dear}))
	for range 2 {
		var rows []Row
		seeGorm(r, "view", db.Table("dear").Order("id").Find(&rows), rows)
		seeGorm(r, "update under the view", db.Table("items").Where("id = ?", 1).Update("price", 5))
	}
	r.see("view", m.CreateView("dear", gorm.ViewOption{Replace: true, Query: db.Table("items").Where("price > ?", 100)}))
	var rows []Row
	seeGorm(r, "view", db.Table("dear").Order("id").Find(&rows), rows)
	r.see("drop view", m.DropView("dear"))
	seeGorm(r, "view", db.Table("dear").Order("id").Find(&rows))
	r.see("rename table", m.RenameTable("items", "goods"), m.HasTable("items"), m.HasTable("goods"))
	inspect("rename table")
	rows = nil
	seeGorm(r, "goods", db.Table("goods").Order("id").Find(&rows), rows)
	r.see("create table", db.Table("items").Migrator().CreateTable(&Item{}))
	look("create table")
	r.see("failed", db.Transaction(func(tx *gorm.DB) error {
		r.see("in a transaction", tx.Table("items").AutoMigrate(&ItemLater{}), tx.Migrator().HasColumn("items", "code"))
		return errors.New("undone")
	}))
	inspect("undone")
	r.see("drop table", m.DropTable("items", "goods"), m.HasTable("items"), m.HasTable("goods"))
	inspect("drop table")
}

// Programs migrate when they start. One that runs on reads what the others
// have changed and written.
func TestGormMigratesAtEachStart(t *testing.T) {
	same(t, func(r *run) {
		type Item struct {
			ID   uint
			Name string
		}
		type Later struct {
			ID   uint
			Name string `gorm:"size:80;default:'none'"`
			Code int    `gorm:"index"`
		}
		old := gormOpen(r, postgres.Config{Conn: r.db}, gorm.Config{})
		for _, prepare := range []bool{false, true} {
			for _, model := range []any{&Item{}, &Item{}, &Later{}, &Later{}} {
				// Opened anew: GORM closes prepared statements some time after
				// DDL, and until then it may meet its stale plans.
				pg := postgres.Config{DriverName: "pgx", DSN: r.dsn}
				if r.shares() {
					// GORM's migrator asks for the simple protocol, which knows
					// no stale plans, if DriverName is "pgx" or empty. Conn is
					// the remedy.
					pg = postgres.Config{Conn: r.open()}
				}
				db := gormOpen(r, pg, gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
				r.see("migrate", db.Table("items").AutoMigrate(model))
				types, err := db.Migrator().ColumnTypes("items")
				r.see("columns", len(types), err)
				r.see("create", db.Table("items").Create(map[string]any{"name": "x"}).Error)
				for _, db := range []*gorm.DB{db, old} {
					var items []Item
					seeGorm(r, "items", db.Table("items").Select("id", "name").Order("id").Find(&items), items)
					var n int64
					seeGorm(r, "count", db.Table("items").Count(&n), n)
					seeGorm(r, "update", db.Table("items").Where("id = ?", n).Update("name", "y"))
				}
			}
			r.see("drop", old.Migrator().DropTable("items"))
		}
	})
}

// gormOpened opens GORM as its documentation has it on pgx, and on coalesce-pgx
// with what stands for that.
func gormOpened(r *run, pg postgres.Config, ours func() *sql.DB) *gorm.DB {
	r.Helper()
	config := gorm.Config{Logger: logger.Discard}
	if !r.shares() {
		return gormOpen(r, pg, config)
	}
	db := ours()
	r.Cleanup(func() { db.Close() })
	return gormOpen(r, postgres.Config{Conn: r.watch(db)}, config)
}

// Given a DSN with a TimeZone, GORM has pgx take a timestamp for one of that
// zone.
func TestGormTimeZone(t *testing.T) {
	same(t, func(r *run) {
		type Event struct {
			ID       uint
			Starts   time.Time `gorm:"type:timestamp"`
			Recorded time.Time
		}
		dsn := r.dsn + "&TimeZone=Asia/Tokyo"
		db := gormOpened(r, postgres.Config{DSN: dsn}, func() *sql.DB {
			cfg, err := pgx.ParseConfig(dsn)
			r.must(err)
			loc, err := time.LoadLocation("Asia/Tokyo")
			r.must(err)
			return sql.OpenDB(coalesce.NewConnector(stdlib.GetConnector(*cfg, stdlib.OptionAfterConnect(func(_ context.Context, c *pgx.Conn) error {
				c.TypeMap().RegisterType(&pgtype.Type{Name: "timestamp", OID: pgtype.TimestampOID, Codec: &pgtype.TimestampCodec{ScanLocation: loc}})
				return nil
			})), coalesce.Config{}))
		})
		r.must(db.AutoMigrate(&Event{}))
		at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
		seeGorm(r, "create", db.Create(&Event{Starts: at, Recorded: at}))
		look := func(after string) {
			r.Helper()
			for range 2 {
				var e Event
				seeGorm(r, after, db.First(&e), e, e.Starts.Unix(), e.Recorded.Unix())
			}
			var starts []time.Time
			seeGorm(r, after, db.Model(&Event{}).Pluck("starts", &starts), starts)
		}
		look("created")
		seeGorm(r, "update", db.Model(&Event{}).Where("id = ?", 1).Update("starts", at.Add(time.Hour)))
		look("updated")
	})
}

// PreferSimpleProtocol is for connections that GORM opens itself.
func TestGormPrefersTheSimpleProtocol(t *testing.T) {
	same(t, func(r *run) {
		db := gormOpened(r, postgres.Config{DSN: r.dsn, PreferSimpleProtocol: true}, func() *sql.DB {
			db, err := sql.Open(r.driver, r.dsn+"&default_query_exec_mode=simple_protocol")
			r.must(err)
			return db
		})
		pool, err := db.DB()
		r.must(err)
		pool.SetMaxOpenConns(1)
		r.must(db.AutoMigrate(&gormCompany{}))
		for _, name := range []string{"a", "b"} {
			r.must(db.Create(&gormCompany{Name: name}).Error)
			for range 2 {
				var c gormCompany
				seeGorm(r, "last", db.Last(&c), c)
			}
		}
		var prepared []string
		seeGorm(r, "prepared", db.Raw("SELECT statement FROM pg_prepared_statements").Scan(&prepared), prepared)
		if len(prepared) > 0 {
			r.Errorf("the server has prepared %q", prepared)
		}
	})
}

func TestGormReadsAtOnce(t *testing.T) {
	same(t, func(r *run) {
		r.db.SetMaxOpenConns(8)
		for _, config := range []gorm.Config{{}, {PrepareStmt: true}} {
			r.exec(`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`)
			config.Logger = logger.Discard
			db := gormOpen(r, postgres.Config{Conn: r.db}, config)
			gormSchema(r, db)
			list := gormUsers(10)
			for i := range list {
				list[i].Orders = []gormOrder{{Item: "pen"}, {Item: "ink"}}
			}
			r.must(db.Create(&list).Error)

			// Everyone reads the same: a query a text, whoever is first.
			const readers = 30
			read := func() (any, error) {
				var all []gormUser
				if err := db.Preload("Orders").Joins("Company").Order("gorm_users.id").Find(&all).Error; err != nil {
					return nil, err
				}
				var n int64
				if err := db.Model(&gormUser{}).Where("age > ?", 21).Count(&n).Error; err != nil {
					return nil, err
				}
				var one gormUser
				err := db.First(&one, 3).Error
				return []any{all, n, one}, err
			}
			const texts = 4
			before := coalesce.StatsOf(r.db)
			saw := make([]any, readers)
			atOnce(r, readers, func(i int) (err error) {
				saw[i], err = read()
				return err
			})
			after := coalesce.StatsOf(r.db)
			for _, v := range saw[1:] {
				if !reflect.DeepEqual(v, saw[0]) {
					r.Fatalf("two readers saw\n%s\nand\n%s", printer.Sdump(saw[0]), printer.Sdump(v))
				}
			}
			r.see("read at once", saw[0])
			if led, private := after.Led-before.Led, after.Private-before.Private; r.shares() && (led != texts || private != 0) {
				r.Errorf("of %d reads, %d were led and %d private; want %d and 0 (%+v)", after.Reads-before.Reads, led, private, texts, after)
			}

			// Everyone writes a row of its own among the readers, and sees it.
			atOnce(r, len(list), func(i int) error {
				for v := 2; v < 6; v++ {
					if err := db.Model(&gormUser{}).Where("id = ?", list[i].ID).Update("version", v).Error; err != nil {
						return err
					}
					var u gormUser
					if err := db.First(&u, list[i].ID).Error; err != nil {
						return err
					}
					if u.Version != v {
						return fmt.Errorf("user %d has version %d after version %d was written", u.ID, u.Version, v)
					}
					if _, err := read(); err != nil {
						return err
					}
					var orders int64
					o := gormOrder{UserID: list[i].ID, Item: "cap"}
					if err := db.Create(&o).Error; err != nil {
						return err
					}
					if err := db.Model(&gormOrder{}).Where("user_id = ?", list[i].ID).Count(&orders).Error; err != nil {
						return err
					}
					if orders != int64(v+1) {
						return fmt.Errorf("user %d has %d orders after the %dth was created", u.ID, orders, v+1)
					}
				}
				return nil
			})
			var all []gormUser
			// The ids of the orders are in the order of who came first.
			seeGorm(r, "written at once", db.Preload("Orders", func(tx *gorm.DB) *gorm.DB { return tx.Select("user_id", "item").Order("item") }).Order("id").Find(&all), all)
			r.exec(`UPDATE gorm_orders SET id = -id`, `UPDATE gorm_orders o SET id = n FROM
				(SELECT id, row_number() OVER (ORDER BY user_id, item, id DESC) n FROM gorm_orders) x WHERE x.id = o.id`)
		}
	})
}

// atOnce runs f n times at once, and ends the run if one fails.
func atOnce(r *run, n int, f func(i int) error) {
	r.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	r.must(errors.Join(errs...))
}
