package compat

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	watermill "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// outboxSubscriber reads with short intervals; what is awaited is a message.
func (r *run) outboxSubscriber(group string, schema watermill.SchemaAdapter, offsets watermill.OffsetsAdapter) *watermill.Subscriber {
	r.Helper()
	s, err := watermill.NewSubscriber(watermill.BeginnerFromStdSQL(r.db), watermill.SubscriberConfig{
		ConsumerGroup:    group,
		PollInterval:     5 * time.Millisecond,
		ResendInterval:   time.Millisecond,
		RetryInterval:    5 * time.Millisecond,
		SchemaAdapter:    schema,
		OffsetsAdapter:   offsets,
		InitializeSchema: true,
	}, nil)
	r.must(err)
	r.Cleanup(func() { s.Close() })
	return s
}

// place writes an order and its message in one transaction.
func (r *run) place(schema watermill.SchemaAdapter, n int, commit bool) error {
	tx, err := r.db.BeginTx(bg, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`INSERT INTO orders (n) VALUES ($1)`, n); err != nil {
		return err
	}
	p, err := watermill.NewPublisher(watermill.TxFromStdSQL(tx), watermill.PublisherConfig{SchemaAdapter: schema}, nil)
	if err != nil {
		return err
	}
	defer p.Close()
	m := message.NewMessage(fmt.Sprintf("order-%d", n), fmt.Appendf(nil, `{"n": %d}`, n))
	m.Metadata.Set("kind", "placed")
	if err := p.Publish("orders", m); err != nil {
		return err
	}
	if !commit {
		return tx.Rollback()
	}
	return tx.Commit()
}

func (r *run) message(messages <-chan *message.Message) *message.Message {
	r.Helper()
	select {
	case m := <-messages:
		return m
	case <-time.After(time.Minute):
		r.Fatal("no message")
		return nil
	}
}

// until asks the same question until it has that answer. A stale answer would
// stay.
func (r *run) until(want int, query string, args ...any) {
	r.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var n int
		r.must(r.db.QueryRow(query, args...).Scan(&n))
		if n == want {
			r.see(query, n)
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s: still %d, want %d", query, n, want)
		}
	}
}

func TestOutbox(t *testing.T) {
	same(t, func(r *run) {
		r.exec(`CREATE TABLE orders (n int PRIMARY KEY)`)
		schema, offsets := watermill.DefaultPostgreSQLSchema{}, watermill.DefaultPostgreSQLOffsetsAdapter{}
		sub := r.outboxSubscriber("mail", schema, offsets)
		for range 2 {
			r.must(sub.SubscribeInitialize("orders"))
		}
		// Each is asked twice: the second answer may be a held one.
		state := func() {
			for range 2 {
				r.query(`SELECT n FROM orders ORDER BY n`)
				r.query(`SELECT uuid, payload, metadata FROM watermill_orders ORDER BY uuid`)
				r.query(`SELECT consumer_group FROM watermill_offsets_orders ORDER BY 1`)
			}
		}
		state()
		r.must(r.place(schema, 1, true))
		state()
		r.must(r.place(schema, 2, false))
		state()

		messages, err := sub.Subscribe(bg, "orders")
		r.must(err)
		offset := `SELECT COALESCE(max(offset_acked), 0) FROM watermill_offsets_orders WHERE consumer_group = 'mail'`
		take := func(what string) *message.Message {
			m := r.message(messages)
			r.see(what, m.UUID, string(m.Payload), m.Metadata)
			return m
		}
		take("first").Ack()
		r.until(1, offset)

		r.must(r.place(schema, 3, true))
		take("nacked").Nack()
		take("again").Ack()
		r.until(3, offset) // 2 was rolled back

		// The handler works in the transaction in which the message is acked.
		r.exec(`CREATE TABLE mails (uuid text)`)
		for n := 4; n < 10; n++ {
			r.must(r.place(schema, n, true))
			m := take("handled")
			tx, ok := watermill.TxFromContext(m.Context())
			r.see("in a transaction", ok)
			_, err := tx.ExecContext(m.Context(), `INSERT INTO mails VALUES ($1)`, m.UUID)
			r.must(err)
			r.until(n-4, `SELECT count(*) FROM mails`)
			m.Ack()
			r.until(n-3, `SELECT count(*) FROM mails`)
			r.until(n, offset)
			state()
		}

		// Another group begins at the beginning.
		audit, err := r.outboxSubscriber("audit", schema, offsets).Subscribe(bg, "orders")
		r.must(err)
		for range 8 {
			m := r.message(audit)
			r.see("audit", m.UUID)
			m.Ack()
		}
		r.until(9, `SELECT offset_acked FROM watermill_offsets_orders WHERE consumer_group = $1`, "audit")
		state()
		r.must(sub.Close())
		_, open := <-messages
		r.see("closed", open)
		// Transactions are numbered by the whole server.
		r.exec(`UPDATE watermill_orders SET transaction_id = '0'`, `UPDATE watermill_offsets_orders SET last_processed_transaction_id = '0'`)
	})
}

func TestOutboxSubscribersAtOnce(t *testing.T) {
	same(t, func(r *run) {
		r.exec(`CREATE TABLE orders (n int PRIMARY KEY)`)
		schema := watermill.DefaultPostgreSQLSchema{SubscribeBatchSize: 5}
		offsets := watermill.DefaultPostgreSQLOffsetsAdapter{}
		first := r.outboxSubscriber("mail", schema, offsets)
		r.must(first.SubscribeInitialize("orders"))
		subscribers := map[string][]*watermill.Subscriber{
			"mail":  {first, r.outboxSubscriber("mail", schema, offsets), r.outboxSubscriber("mail", schema, offsets)},
			"audit": {r.outboxSubscriber("audit", schema, offsets)},
		}

		const publishers, each = 4, 25
		var mu sync.Mutex
		got := make(map[string][]string) // guarded by mu
		var left sync.WaitGroup
		left.Add(len(subscribers) * publishers * each)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var consumers sync.WaitGroup
		for group, subs := range subscribers {
			for _, s := range subs {
				messages, err := s.Subscribe(ctx, "orders")
				r.must(err)
				consumers.Go(func() {
					for m := range messages {
						mu.Lock()
						got[group] = append(got[group], m.UUID)
						mu.Unlock()
						m.Ack()
						left.Done()
					}
				})
			}
		}
		var wg sync.WaitGroup
		for i := range publishers {
			wg.Go(func() {
				for n := range each {
					for _, err := range []error{r.place(schema, i*each+n, n%5 != 0), r.place(schema, 1000+i*each+n, n%5 == 0)} {
						if err != nil {
							r.Errorf("publisher: %v", err)
						}
					}
				}
			})
		}
		wg.Wait()
		left.Wait()
		r.until(2, `SELECT count(*) FROM watermill_offsets_orders
			WHERE offset_acked = (SELECT "offset" FROM watermill_orders ORDER BY transaction_id DESC, "offset" DESC LIMIT 1)`)
		cancel()
		consumers.Wait()
		for _, uuids := range got {
			slices.Sort(uuids)
		}
		r.see("got", got)
		r.query(`SELECT count(*), sum(n) FROM orders`)
		r.query(`SELECT count(*) FROM watermill_orders`)
		// The order of the publishers is chance.
		r.exec(`TRUNCATE watermill_orders, watermill_offsets_orders`)
	})
}

// The queue schema has no groups: a message is gone, or marked, when it was
// acked.
func TestOutboxQueue(t *testing.T) {
	for name, offsets := range map[string]watermill.PostgreSQLQueueOffsetsAdapter{"marked": {}, "deleted": {DeleteOnAck: true}} {
		t.Run(name, func(t *testing.T) {
			same(t, func(r *run) {
				r.exec(`CREATE TABLE orders (n int PRIMARY KEY)`)
				schema := watermill.PostgreSQLQueueSchema{}
				sub := r.outboxSubscriber("", schema, offsets)
				messages, err := sub.Subscribe(bg, "orders")
				r.must(err)
				unacked := `SELECT count(*) FROM watermill_orders WHERE NOT acked`
				r.until(0, unacked)
				for n := range 5 {
					r.must(r.place(schema, n, true))
					r.must(r.place(schema, 100+n, false))
					m := r.message(messages)
					r.see("message", m.UUID, string(m.Payload), m.Metadata)
					r.until(1, unacked)
					m.Ack()
					r.until(0, unacked)
					for range 2 {
						r.query(`SELECT "offset", uuid, acked FROM watermill_orders ORDER BY 1`)
					}
				}
				r.must(sub.Close())

				// Published by the pool itself, with a schema of its own.
				p, err := watermill.NewPublisher(watermill.BeginnerFromStdSQL(r.db), watermill.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
				r.must(err)
				for n := range 3 {
					r.must(p.Publish("returns", message.NewMessage(fmt.Sprint(n), []byte(`{}`))))
					var count sql.NullInt64
					for range 2 {
						r.must(r.db.QueryRow(`SELECT count(*) FROM watermill_returns`).Scan(&count))
						r.see("returns", count)
					}
				}
				r.must(p.Close())
			})
		})
	}
}
