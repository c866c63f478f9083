//go:build !go1.27

package coalesce

import "database/sql/driver"

// Before Go 1.27 database/sql does all scanning.

func replayed(r *replay) driver.Rows { return r }
func streamed(s *stream) driver.Rows { return s }

func (*scanMaps) know([]column) bool { return true }
