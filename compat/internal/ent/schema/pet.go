package schema

import (
	"context"
	"fmt"

	"entgo.io/ent"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// Pet may have an owner, who has no two of one name.
type Pet struct{ ent.Schema }

// Fields of the Pet.
func (Pet) Fields() []ent.Field {
	return []ent.Field{
		field.String("name"),
		field.Enum("kind").Values("cat", "dog").Optional().Nillable(),
	}
}

// Edges of the Pet.
func (Pet) Edges() []ent.Edge {
	return []ent.Edge{edge.From("owner", User.Type).Ref("pets").Unique()}
}

// Indexes of the Pet.
func (Pet) Indexes() []ent.Index {
	return []ent.Index{index.Fields("name").Edges("owner").Unique()}
}

// Hooks of the Pet.
func (Pet) Hooks() []ent.Hook {
	return []ent.Hook{func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			if name, ok := m.Field("name"); ok && name == "nobody" {
				return nil, fmt.Errorf("no pet is called %v", name)
			}
			return next.Mutate(ctx, m)
		})
	}}
}
