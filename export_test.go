package coalesce

import "database/sql"

// Used is what is taken from the budget of db, and how much of that is held and
// could go at any time.
func Used(db *sql.DB) (used, held int64) {
	k, err := connectorOf(db)
	if err != nil {
		return 0, 0
	}
	k.memo.mu.Lock()
	defer k.memo.mu.Unlock()
	return k.memo.used, k.memo.count.stored
}

// BeingRead is the rest: what flights and readers have taken.
func BeingRead(db *sql.DB) int64 {
	used, held := Used(db)
	return used - held
}

// WaitingForPlace is how many wait for a place of coalesce_max_conns.
func WaitingForPlace(db *sql.DB) int {
	k, err := connectorOf(db)
	if err != nil {
		return 0
	}
	k.places.mu.Lock()
	defer k.places.mu.Unlock()
	return k.places.waiting.Len()
}
