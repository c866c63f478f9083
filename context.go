package coalesce

import (
	"context"
	"time"
)

type callKey struct{}

// call is what one context asks of the reads made under it. It is immutable.
type call struct {
	fresh  bool
	scope  string
	ttl    time.Duration
	hasTTL bool
}

var plainCall call

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &plainCall
}

func withCall(ctx context.Context, change func(*call)) context.Context {
	c := *callOf(ctx)
	change(&c)
	return context.WithValue(ctx, callKey{}, &c)
}

// Fresh returns a context under which every read goes straight to the server:
// it joins no flight, is answered from no held result, and leaves nothing
// behind for others. Without it, a read may be answered with a result that
// resolved up to the TTL ago.
func Fresh(ctx context.Context) context.Context {
	return withCall(ctx, func(c *call) { c.fresh = true })
}

// Scope returns a context whose reads share only with reads of the same name.
// It is for connectors whose hooks make a session depend on the caller, a
// tenant taken from the context for example. Without it, all callers of one
// connector are in the scope "".
func Scope(ctx context.Context, name string) context.Context {
	return withCall(ctx, func(c *call) { c.scope = name })
}

// TTL returns a context whose reads accept a held result only if it resolved
// less than d ago, and ask that their own be held for d after it resolves.
// Where callers of one flight ask for different holds the longest counts.
// With d <= 0 a read may join a flight but is neither answered from a held
// result nor held itself. Without TTL the connector's TTL applies; a result
// that may not be held at all (one that depends on now(), say) stays so.
func TTL(ctx context.Context, d time.Duration) context.Context {
	return withCall(ctx, func(c *call) { c.ttl, c.hasTTL = max(d, 0), true })
}
