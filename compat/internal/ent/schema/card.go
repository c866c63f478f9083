package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

// Card belongs to one User, and has a key of text.
type Card struct{ ent.Schema }

// Fields of the Card.
func (Card) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").MaxLen(20).Immutable(),
		field.Time("issued").Default(now).Immutable(),
		field.Uint32("limit").Default(100),
	}
}

// Edges of the Card.
func (Card) Edges() []ent.Edge {
	return []ent.Edge{edge.From("owner", User.Type).Ref("card").Unique().Required()}
}
