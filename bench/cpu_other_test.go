//go:build !unix

package bench

import "time"

var began = time.Now()

// cpuTime is the time by the clock where the processor's is not to be had.
func cpuTime() time.Duration { return time.Since(began) }
