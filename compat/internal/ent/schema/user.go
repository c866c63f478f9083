// Package schema is the model of the ent programs. What is generated from it
// is checked in: run go generate in the folder above after a change.
package schema

import (
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"entgo.io/ent/schema/mixin"
	"github.com/google/uuid"
)

// User has a field of most types, and an edge of each kind.
type User struct{ ent.Schema }

// Mixin of the User.
func (User) Mixin() []ent.Mixin { return []ent.Mixin{mixin.Time{}} }

// Fields of the User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").NotEmpty().MaxLen(60),
		field.String("email").Unique().Optional().Nillable(),
		field.Int("age").Min(0).Default(18),
		field.Enum("role").Values("member", "editor", "owner").Default("member"),
		field.JSON("settings", map[string]any{}).Optional(),
		field.JSON("tags", []string{}).Optional(),
		field.Bool("active").Default(true),
		field.Float("balance").Default(0).SchemaType(map[string]string{dialect.Postgres: "numeric(12,2)"}),
		field.Bytes("picture").Optional().Nillable(),
		field.UUID("token", uuid.UUID{}).Optional(),
		field.Time("seen_at").Optional().Nillable(),
		field.Time("born").Optional().SchemaType(map[string]string{dialect.Postgres: "date"}),
		field.Int64("version").Default(1),
		field.Text("note").Optional().Sensitive(),
	}
}

// Edges of the User.
func (User) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("card", Card.Type).Unique().Annotations(entsql.OnDelete(entsql.Cascade)),
		edge.To("pets", Pet.Type).Annotations(entsql.OnDelete(entsql.SetNull)),
		edge.From("groups", Group.Type).Ref("users"),
		edge.To("friends", User.Type),
		edge.To("spouse", User.Type).Unique(),
		edge.To("reports", User.Type).From("manager").Unique(),
	}
}

// Indexes of the User.
func (User) Indexes() []ent.Index {
	return []ent.Index{index.Fields("role", "age")}
}

// now is what programs compare times with: microseconds, as PostgreSQL keeps.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }
