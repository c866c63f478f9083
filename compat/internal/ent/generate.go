package ent

//go:generate go tool ent generate --feature sql/execquery,sql/lock,sql/modifier,sql/upsert ./schema
