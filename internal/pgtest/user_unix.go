//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// serverUser is who the server must run as: nil for ourselves, or if we are
// root, as which neither initdb nor postgres runs, someone else.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("pgtest: PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")
}

// traversable reports whether dir exists and the user may pass through it and
// all directories above it.
func traversable(dir string, as *syscall.Credential) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if as == nil {
		// Whether we can write there shows when we do.
		return true
	}
	for ; ; dir = filepath.Dir(dir) {
		if !mayEnter(dir, as) {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func mayEnter(dir string, as *syscall.Credential) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && st.Uid == as.Uid:
		return info.Mode()&0o100 != 0
	case ok && st.Gid == as.Gid:
		return info.Mode()&0o010 != 0
	default:
		return info.Mode()&0o001 != 0
	}
}
