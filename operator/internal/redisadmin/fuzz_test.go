package redisadmin

import "testing"

// A Redis of the user's image says what it likes of itself.
func FuzzInfo(f *testing.F) {
	f.Add("# Replication\r\nrole:slave\r\nmaster_host:shop-redis-0\r\nmaster_link_status:up\r\n# Keyspace\r\ndb0:keys=3,expires=3\r\nused_memory:100\r\nmaxmemory:200\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		if says := readInfo(text); says.Stashes < 0 || says.Used < 0 || says.Max < 0 {
			t.Errorf("it is taken: %+v", says)
		}
	})
}
