// Package bench holds no code of its own: its benchmarks put coalesce-pgx
// beside what one would use instead, case by case, in one run.
//
//	bench/run -rounds 10            # every case, on a server that it starts itself
//	bench/run -rounds 10 -bench '^BenchmarkLed$'
//
// run compiles the benchmarks once, goes through them as often as it is told,
// and prints what benchstat makes of it, a column for each driver. Going
// through them again and again, rather than -count, which repeats each one ten
// times before it comes to its neighbour, lets a machine that is busy for a
// minute slow all drivers alike:
//
//	go test -run '^$' -bench . -count 10 . | tee out.txt
//	go tool benchstat -col /driver out.txt
//
// gives the same table where the machine is quiet.
//
// A name has three parts: the case, its size, and the driver:
//
//   - floor is a driver that returns prebuilt rows at once: what database/sql
//     itself costs. In a burst, its first caller makes the query and the rest
//     wait on a channel.
//   - coalesce is this driver, pgx the one it stands in for.
//   - pool is pgxpool by its own interface, pool-sql the same through database/sql.
//   - singleflight and ristretto are what people write by hand around pgx: a
//     singleflight.Group, or a cache of finished answers, that gives all
//     callers one slice of structs.
//   - coalesce÷pgx, coalesce÷floor: the two take turns of some 20 ms each, and
//     what is reported is the median ratio of a turn to its neighbour (x-pgx,
//     x-floor). Noise that lasts longer than a turn is in both, so these decide
//     where the difference is a few percent. -bench '././÷' runs them alone.
//
// The tests, without -bench, check what can be counted: queries, connections,
// allocations, bytes.
package bench
