package pgtest

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// packageDirs are where packages put the programs: Debian and Ubuntu, the
// PostgreSQL project's RPMs, Homebrew on Apple and Intel processors.
var packageDirs = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/usr/local/pgsql/bin",
}

// installedBinDirs lists where the programs of an installed PostgreSQL may be.
func installedBinDirs() []string { return binDirs(pathBinDir, pgConfigBinDir, filepath.Glob) }

// binDirs lists what PATH says, what pg_config says, and the directories of
// packages, the newest version of each kind first.
func binDirs(path, pgConfig func() string, glob func(string) ([]string, error)) []string {
	dirs := []string{path(), pgConfig()}
	for _, pattern := range packageDirs {
		found, _ := glob(pattern) // the patterns are well-formed
		slices.SortStableFunc(found, func(a, b string) int { return versionIn(b) - versionIn(a) })
		dirs = append(dirs, found...)
	}
	var unique []string
	for _, d := range dirs {
		if d != "" && !slices.Contains(unique, d) {
			unique = append(unique, d)
		}
	}
	return unique
}

func pathBinDir() string {
	p, err := exec.LookPath("postgres")
	if err != nil {
		return ""
	}
	return filepath.Dir(p)
}

func pgConfigBinDir() string {
	out, err := exec.Command("pg_config", "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// versionIn is the first number in s, a directory such as
// /usr/lib/postgresql/17/bin or the answer of postgres --version; 0 if none.
func versionIn(s string) int {
	start := strings.IndexAny(s, "0123456789")
	if start < 0 {
		return 0
	}
	s = s[start:]
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		s = s[:end]
	}
	n, _ := strconv.Atoi(s)
	return n
}
