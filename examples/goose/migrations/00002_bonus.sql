-- +goose Up
ALTER TABLE repositories ADD COLUMN bonus int NOT NULL DEFAULT 0;
UPDATE repositories SET stars = stars + 1, bonus = 1 WHERE id = 98;

-- +goose Down
UPDATE repositories SET stars = stars - bonus;
ALTER TABLE repositories DROP COLUMN bonus;
