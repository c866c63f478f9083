package coalesce

import (
	"sync"

	"github.com/coalesce-pgx/coalesce/internal/statement"
)

// cache remembers what is known of texts, within a bound: when the young
// generation is full it becomes the old one, and what was old and is not asked
// for again is gone. It is safe for concurrent use.
type cache[V any] struct {
	limit int // bytes of text in one generation; immutable

	mu         sync.RWMutex
	young, old map[string]V
	size       int // bytes in young
}

const cacheBytes = 4 << 20

// maxText is the longest text that is remembered: it takes the server longer to
// read one than it takes to analyse it again.
const maxText = statement.MaxLen

// perText is what an entry costs beside its text.
const perText = 512

func (c *cache[V]) get(text string) (V, bool) {
	c.mu.RLock()
	v, ok := c.young[text]
	if ok {
		c.mu.RUnlock()
		return v, true
	}
	v, ok = c.old[text]
	c.mu.RUnlock()
	if ok {
		c.put(text, v)
	}
	return v, ok
}

func (c *cache[V]) put(text string, v V) {
	if len(text) > maxText {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	size := len(text) + perText
	if c.young == nil || c.size+size > c.limit {
		c.old, c.young, c.size = c.young, make(map[string]V), 0
	}
	if _, ok := c.young[text]; !ok {
		c.size += size
	}
	c.young[text] = v
}

// texts caches what is known of texts.
type texts struct{ cache[*text] }

func newTexts() *texts { return &texts{cache[*text]{limit: cacheBytes}} }

func (t *texts) get(query string) *text {
	a, ok := t.cache.get(query)
	if !ok {
		a = newText(query)
		t.put(query, a)
	}
	return a
}

// preparedTexts caches how many arguments a text takes that the server has
// prepared, for as long as the schema is the one it was prepared under.
type preparedTexts struct{ cache[preparedText] }

type preparedText struct {
	inputs int
	schema uint64
}

func newPreparedTexts() *preparedTexts {
	return &preparedTexts{cache[preparedText]{limit: cacheBytes}}
}

func (p *preparedTexts) get(text string, schema uint64) (int, bool) {
	v, ok := p.cache.get(text)
	return v.inputs, ok && v.schema == schema
}

func (p *preparedTexts) put(text string, schema uint64, inputs int) {
	p.cache.put(text, preparedText{inputs, schema})
}
