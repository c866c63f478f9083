package coalesce

import (
	"fmt"
	"strings"
	"testing"
)

func TestAnyNumberOfTextsTakesBoundedMemory(t *testing.T) {
	texts := newTexts()
	prepared := newPreparedTexts()
	for i := range 100_000 {
		text := fmt.Sprintf("SELECT v FROM t WHERE id = %d /* traceparent='%d' */", i, i)
		texts.get(text)
		prepared.put(text, 0, 1)
	}
	bytes := 0
	for _, generation := range []int{len(texts.young), len(texts.old), len(prepared.young), len(prepared.old)} {
		bytes += generation * perText
	}
	if bytes > 4*cacheBytes {
		t.Errorf("%d bytes of entries; want %d at most", bytes, 4*cacheBytes)
	}
	if len(texts.young)+len(texts.old) < 1000 {
		t.Error("hardly any text is remembered")
	}
}

func TestAHugeTextIsNotRemembered(t *testing.T) {
	texts, prepared := newTexts(), newPreparedTexts()
	huge := "INSERT INTO t VALUES ('" + strings.Repeat("x", maxText) + "')"
	if a := texts.get(huge); !a.Writes {
		t.Errorf("judged to be %+v", a.Effect)
	}
	prepared.put(huge, 0, 1)
	if n := len(texts.young) + len(prepared.young); n != 0 {
		t.Errorf("%d are remembered", n)
	}
}

func TestATextInUseStaysRemembered(t *testing.T) {
	texts := newTexts()
	first := texts.get("SELECT 1")
	for i := range 50_000 {
		texts.get(fmt.Sprintf("SELECT %d", i+2))
		if texts.get("SELECT 1") != first {
			t.Fatalf("forgotten after %d other texts", i)
		}
	}
}

func TestAPreparedTextIsForgottenWithTheSchema(t *testing.T) {
	p := newPreparedTexts()
	p.put("SELECT $1", 1, 1)
	if n, ok := p.get("SELECT $1", 1); n != 1 || !ok {
		t.Errorf("got %d, %v; want 1, true", n, ok)
	}
	if _, ok := p.get("SELECT $1", 2); ok {
		t.Error("still known after the schema changed")
	}
}
