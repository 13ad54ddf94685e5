// A flow table as one builds it on DPDK: rte_hash gives a position, the entry beside it is counted
// in. One entry for both directions, so keys are brought into one direction first. Each way to look
// up is tried for a moment, and the fastest is timed. Keys are those of
// apps/micro/src/flow.rs.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>

#include "peer.h"
#include "random.h"

enum { BULK = 32, DRAWN = 1 << 18 };

struct key {
	uint64_t addresses, rest; // big endian: source, destination; ports, protocol, user
};

struct entry {
	uint64_t last_seen, packets[2], bytes[2];
	uint8_t state, flipped;
} __rte_cache_aligned;

static struct key key_of(uint64_t number)
{
	uint64_t ends = mixed(number), ports = mixed(~number) & 0xffffffff;
	struct key key = { rte_cpu_to_be_64(ends), rte_cpu_to_be_64(ports << 32 | 17 << 24) };
	return key;
}

static __rte_always_inline struct key reversed(struct key key)
{
	uint64_t ports = key.rest & 0xffffffff;
	struct key other = {
		key.addresses << 32 | key.addresses >> 32,
		(key.rest & ~0xffffffffULL) | ((ports << 16 | ports >> 16) & 0xffffffff),
	};
	return other;
}

// The lesser of the two directions; any order will do.
static __rte_always_inline struct key canonical(struct key key, uint8_t *flip)
{
	struct key other = reversed(key);
	int less = other.addresses < key.addresses ||
		(other.addresses == key.addresses && other.rest < key.rest);
	uint64_t mask = 0 - (uint64_t)less;
	key.addresses ^= (key.addresses ^ other.addresses) & mask;
	key.rest ^= (key.rest ^ other.rest) & mask;
	*flip = less;
	return key;
}

static __rte_always_inline int
touch(struct rte_hash *table, struct entry *entries, const struct key *burst, uint64_t now, int before)
{
	struct key keys[BULK];
	uint8_t flips[BULK];
	const void *pointers[BULK];
	hash_sig_t signatures[BULK];
	int32_t positions[BULK];
	int found = 0;
	for (int i = 0; i < BULK; i++) {
		keys[i] = canonical(burst[i], &flips[i]);
		pointers[i] = &keys[i];
	}
	if (before) {
		for (int i = 0; i < BULK; i++)
			signatures[i] = rte_hash_crc(&keys[i], sizeof(struct key), 0);
		rte_hash_lookup_with_hash_bulk(table, pointers, signatures, BULK, positions);
	} else {
		rte_hash_lookup_bulk(table, pointers, BULK, positions);
	}
	for (int i = 0; i < BULK; i++)
		if (positions[i] >= 0)
			rte_prefetch0(&entries[positions[i]]);
	for (int i = 0; i < BULK; i++) {
		if (positions[i] < 0)
			continue;
		struct entry *entry = &entries[positions[i]];
		int way = flips[i] != entry->flipped;
		entry->last_seen = now;
		entry->packets[way]++;
		entry->bytes[way] += 64;
		found++;
	}
	return found;
}

static __rte_always_inline double touch_for(struct rte_hash *table, struct entry *entries,
	const struct key *packets, int before, uint64_t cycles)
{
	uint64_t done = 0, start = rte_rdtsc_precise(), now;
	do {
		for (int burst = 0; burst < 256; burst++, done += BULK)
			if (touch(table, entries, packets + done % DRAWN, done, before) != BULK)
				return -1;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, done);
}

int flow_row(const struct ask *ask, struct answer *answer)
{
	uint32_t flows = strstr(ask->row, ".1m") != NULL ? 1000000 : 1000;
	struct rte_hash_parameters parameters = {
		.name = "flows",
		.entries = flows,
		.key_len = sizeof(struct key),
		.hash_func = rte_hash_crc,
		.socket_id = (int)rte_socket_id(),
	};
	struct rte_hash *table = rte_hash_create(&parameters);
	// Positions go beyond the entries asked for where lcores keep free ones.
	struct entry *entries = rte_zmalloc("entries", (2 * (size_t)flows + 1024) * sizeof(*entries), 64);
	struct key *packets = malloc(DRAWN * sizeof(*packets));
	if (table == NULL || entries == NULL || packets == NULL)
		return -1;
	uint32_t made = 0;
	for (; made < flows; made++) {
		uint8_t flip;
		struct key key = canonical(key_of(made), &flip);
		int32_t position = rte_hash_add_key(table, &key);
		if (position < 0)
			break; // its buckets are full: nothing to be done
		entries[position].flipped = flip;
	}
	if (made == 0)
		return -1;
	for (uint64_t i = 0; i < DRAWN; i++) {
		struct key key = key_of(mixed(i) % made);
		packets[i] = mixed(~i) % 2 ? reversed(key) : key;
	}
	double inside = touch_for(table, entries, packets, 0, cycles_of(ask->seconds / 8));
	double before = touch_for(table, entries, packets, 1, cycles_of(ask->seconds / 8));
	if (inside < 0 || before < 0)
		return -1;
	answer->value = before < inside ? touch_for(table, entries, packets, 1, cycles_of(ask->seconds))
		: touch_for(table, entries, packets, 0, cycles_of(ask->seconds));
	answer->what = before < inside ? "rte_hash_lookup_with_hash_bulk and entries"
		: "rte_hash_lookup_bulk and entries";
	answer->memory = entries;
	snprintf(answer->detail, sizeof(answer->detail), "\"flows\":%u", made);
	return answer->value > 0 ? 0 : -1;
}
