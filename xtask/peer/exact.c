// rte_hash beside our exact match. Each way that DPDK offers (CRC or Jenkins hash; hashed inside or
// before; key positions or data) is tried for a moment, and the fastest is timed. Keys, their order
// and the sizes of tables are those of apps/micro/src/exact.rs.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_jhash.h>

#include "peer.h"

enum { BULK = 32, KEY_MAX = 64, ASKED_MIN = 1 << 18 };

struct size {
	uint32_t limit, entries;
};
static const struct size SMALL = { 1366, 1024 };
static const struct size LARGE = { 4 << 20, 3 << 20 };
static const struct size CHANGED = { 1 << 20, 3 << 18 };

enum way { INSIDE, BEFORE, INSIDE_DATA, BEFORE_DATA, WAYS };
static const char *const WAY[WAYS] = { "", "_with_hash", "_data", "_with_hash_data" };

static uint64_t mixed(uint64_t number)
{
	uint64_t z = number + 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static void make_key(uint8_t *key, unsigned key_bytes, uint64_t number)
{
	uint64_t low = mixed(number), high = mixed(~number);
	uint8_t tuple[16] = { 0 };
	memcpy(tuple, &low, 8);
	memcpy(tuple + 8, &high, 4);
	tuple[12] = high >> 40 & 1 ? 17 : 6;
	for (unsigned i = 0; i < key_bytes; i++)
		key[i] = tuple[i % 16];
}

static uint8_t *make_keys(uint32_t count, unsigned key_bytes)
{
	uint8_t *keys = malloc((size_t)count * key_bytes);
	for (uint32_t i = 0; keys != NULL && i < count; i++)
		make_key(keys + (size_t)i * key_bytes, key_bytes, i);
	return keys;
}

// Numbers below `entries` in random order, repeated up to ASKED_MIN, as keys.
static uint8_t *shuffled(uint32_t entries, unsigned key_bytes, uint64_t offset, uint32_t *count)
{
	*count = entries > ASKED_MIN ? entries : ASKED_MIN;
	uint64_t *numbers = malloc(*count * sizeof(*numbers));
	uint8_t *keys = malloc((size_t)*count * key_bytes);
	if (numbers == NULL || keys == NULL)
		return NULL;
	for (uint32_t i = 0; i < *count; i++)
		numbers[i] = i % entries;
	for (uint32_t i = *count - 1; i > 0; i--) {
		uint32_t other = mixed(i ^ 0x5eedULL << 32) % (i + 1ULL);
		uint64_t held = numbers[i];
		numbers[i] = numbers[other];
		numbers[other] = held;
	}
	for (uint32_t i = 0; i < *count; i++)
		make_key(keys + (size_t)i * key_bytes, key_bytes, numbers[i] + offset);
	free(numbers);
	return keys;
}

static struct rte_hash *make_table(const char *name, uint32_t limit, unsigned key_bytes, int crc)
{
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = limit,
		.key_len = key_bytes,
		.hash_func = crc ? rte_hash_crc : rte_jhash,
		.socket_id = (int)rte_socket_id(),
	};
	return rte_hash_create(&parameters);
}

static __rte_always_inline uint32_t signature(const void *key, unsigned key_bytes, int crc)
{
	return crc ? rte_hash_crc(key, key_bytes, 0) : rte_jhash(key, key_bytes, 0);
}

static __rte_always_inline uint64_t
ask_burst(struct rte_hash *table, const uint8_t *keys, unsigned key_bytes, int crc, enum way way)
{
	const void *pointers[BULK];
	hash_sig_t signatures[BULK];
	int32_t positions[BULK];
	void *data[BULK];
	uint64_t hits = 0;
	for (unsigned i = 0; i < BULK; i++)
		pointers[i] = keys + i * key_bytes;
	if (way == BEFORE || way == BEFORE_DATA)
		for (unsigned i = 0; i < BULK; i++)
			signatures[i] = signature(pointers[i], key_bytes, crc);
	switch (way) {
	case INSIDE:
		rte_hash_lookup_bulk(table, pointers, BULK, positions);
		break;
	case BEFORE:
		rte_hash_lookup_with_hash_bulk(table, pointers, signatures, BULK, positions);
		break;
	case INSIDE_DATA:
		rte_hash_lookup_bulk_data(table, pointers, BULK, &hits, data);
		break;
	default:
		rte_hash_lookup_with_hash_bulk_data(table, pointers, signatures, BULK, &hits, data);
	}
	if (way == INSIDE || way == BEFORE)
		for (unsigned i = 0; i < BULK; i++)
			hits |= (uint64_t)(positions[i] >= 0) << i;
	__asm__ volatile("" : : "r"(positions), "r"(data) : "memory");
	return hits;
}

static __rte_always_inline double ask_for(struct rte_hash *table, const uint8_t *asked, uint32_t count,
	unsigned key_bytes, int crc, enum way way, uint64_t expected, uint64_t cycles)
{
	uint64_t keys = 0, start = rte_rdtsc_precise(), now;
	uint32_t at = 0;
	do {
		for (int i = 0; i < 256; i++) {
			if (ask_burst(table, asked + (size_t)at * key_bytes, key_bytes, crc, way) != expected)
				return -1;
			at = at + 2 * BULK > count ? 0 : at + BULK;
		}
		keys += 256 * BULK;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, keys);
}

// The key's size and the hash are constants to the compiler, as they are in an application.
static double ask_way(struct rte_hash *table, const uint8_t *asked, uint32_t count,
	unsigned key_bytes, int crc, enum way way, uint64_t expected, uint64_t cycles)
{
	if (key_bytes == 16 && crc)
		return ask_for(table, asked, count, 16, 1, way, expected, cycles);
	if (key_bytes == 16)
		return ask_for(table, asked, count, 16, 0, way, expected, cycles);
	if (crc)
		return ask_for(table, asked, count, 64, 1, way, expected, cycles);
	return ask_for(table, asked, count, 64, 0, way, expected, cycles);
}

static int lookup(const struct ask *ask, struct size size, unsigned key_bytes, int absent,
	struct answer *answer)
{
	static char what[64];
	struct rte_hash *tables[2] = { NULL, NULL };
	uint8_t *keys = make_keys(size.entries, key_bytes);
	uint32_t count;
	uint8_t *asked = shuffled(size.entries, key_bytes, absent ? 1ULL << 40 : 0, &count);
	if (keys == NULL || asked == NULL)
		return -1;
	for (int crc = 0; crc < 2; crc++) {
		tables[crc] = make_table(crc ? "crc" : "jhash", size.limit, key_bytes, crc);
		if (tables[crc] == NULL)
			return -1;
		for (uint32_t i = 0; i < size.entries; i++)
			if (rte_hash_add_key_data(tables[crc], keys + (size_t)i * key_bytes, (void *)(uintptr_t)i) != 0)
				return -1;
	}
	uint64_t expected = absent ? 0 : UINT32_MAX;
	double best = 0;
	int best_crc = 1;
	enum way best_way = INSIDE;
	for (int crc = 0; crc < 2; crc++) {
		for (enum way way = INSIDE; way < WAYS; way++) {
			double ns = ask_way(tables[crc], asked, count, key_bytes, crc, way, expected,
				cycles_of(ask->seconds / 8));
			if (ns <= 0)
				return -1;
			if (best == 0 || ns < best) {
				best = ns;
				best_crc = crc;
				best_way = way;
			}
		}
	}
	answer->value = ask_way(tables[best_crc], asked, count, key_bytes, best_crc, best_way, expected,
		cycles_of(ask->seconds));
	snprintf(what, sizeof(what), "rte_hash_lookup%s_bulk%s, %s",
		best_way == BEFORE || best_way == BEFORE_DATA ? "_with_hash" : "",
		best_way == INSIDE_DATA || best_way == BEFORE_DATA ? "_data" : "",
		best_crc ? "crc" : "jhash");
	answer->what = what;
	answer->memory = tables[best_crc];
	snprintf(answer->detail, sizeof(answer->detail), "\"entries\":%u", size.entries);
	return answer->value > 0 ? 0 : -1;
}

// One round: all keys in, and out again or forgotten. Returns the cycles of what is asked for.
static __rte_always_inline uint64_t change_all(struct rte_hash *table, const uint8_t *keys,
	const uint8_t *order, uint32_t entries, int crc, enum way way, int removal)
{
	int bad = 0;
	uint64_t start = rte_rdtsc_precise(), inserted, removed;
	for (uint32_t i = 0; i < entries; i++) {
		const uint8_t *key = keys + (size_t)i * 16;
		switch (way) {
		case INSIDE:
			bad |= rte_hash_add_key(table, key) < 0;
			break;
		case BEFORE:
			bad |= rte_hash_add_key_with_hash(table, key, signature(key, 16, crc)) < 0;
			break;
		case INSIDE_DATA:
			bad |= rte_hash_add_key_data(table, key, (void *)(uintptr_t)i) != 0;
			break;
		default:
			bad |= rte_hash_add_key_with_hash_data(table, key, signature(key, 16, crc),
				(void *)(uintptr_t)i) != 0;
		}
	}
	inserted = rte_rdtsc_precise();
	if (removal)
		for (uint32_t i = 0; i < entries; i++) {
			const uint8_t *key = order + (size_t)i * 16;
			if (way == INSIDE || way == INSIDE_DATA)
				bad |= rte_hash_del_key(table, key) < 0;
			else
				bad |= rte_hash_del_key_with_hash(table, key, signature(key, 16, crc)) < 0;
		}
	removed = rte_rdtsc_precise();
	rte_hash_reset(table);
	return bad ? 0 : removal ? removed - inserted : inserted - start;
}

static int change(const struct ask *ask, int removal, struct answer *answer)
{
	static char what[64];
	uint8_t *keys = make_keys(CHANGED.entries, 16);
	uint32_t count;
	uint8_t *order = shuffled(CHANGED.entries, 16, 0, &count);
	struct rte_hash *tables[2] = {
		make_table("jhash", CHANGED.limit, 16, 0),
		make_table("crc", CHANGED.limit, 16, 1),
	};
	if (keys == NULL || order == NULL || tables[0] == NULL || tables[1] == NULL)
		return -1;
	uint64_t best = 0;
	int best_crc = 1;
	enum way best_way = INSIDE;
	for (int crc = 0; crc < 2; crc++)
		for (enum way way = INSIDE; way < WAYS; way++)
			for (int round = 0; round < 2; round++) {
				uint64_t cycles = crc
					? change_all(tables[1], keys, order, CHANGED.entries, 1, way, removal)
					: change_all(tables[0], keys, order, CHANGED.entries, 0, way, removal);
				if (cycles == 0)
					return -1;
				if (best == 0 || cycles < best) {
					best = cycles;
					best_crc = crc;
					best_way = way;
				}
			}
	uint64_t spent = 0, wanted = cycles_of(ask->seconds), changed = 0;
	while (spent < wanted) {
		spent += best_crc
			? change_all(tables[1], keys, order, CHANGED.entries, 1, best_way, removal)
			: change_all(tables[0], keys, order, CHANGED.entries, 0, best_way, removal);
		changed += CHANGED.entries;
	}
	answer->value = ns_per(spent, changed);
	snprintf(what, sizeof(what), "rte_hash_%s_key%s, %s", removal ? "del" : "add", WAY[best_way],
		best_crc ? "crc" : "jhash");
	answer->what = what;
	answer->memory = tables[best_crc];
	snprintf(answer->detail, sizeof(answer->detail), "\"entries\":%u", CHANGED.entries);
	return 0;
}

int exact_row(const struct ask *ask, struct answer *answer)
{
	const char *row = ask->row;
	if (strcmp(row, "exact.lookup16.1k") == 0)
		return lookup(ask, SMALL, 16, 0, answer);
	if (strcmp(row, "exact.lookup16.4m") == 0)
		return lookup(ask, LARGE, 16, 0, answer);
	if (strcmp(row, "exact.miss16.1k") == 0)
		return lookup(ask, SMALL, 16, 1, answer);
	if (strcmp(row, "exact.miss16.4m") == 0)
		return lookup(ask, LARGE, 16, 1, answer);
	if (strcmp(row, "exact.lookup64.1k") == 0)
		return lookup(ask, SMALL, 64, 0, answer);
	if (strcmp(row, "exact.lookup64.4m") == 0)
		return lookup(ask, LARGE, 64, 0, answer);
	if (strcmp(row, "exact.insert16") == 0 || strcmp(row, "exact.insert16.single") == 0)
		return change(ask, 0, answer);
	if (strcmp(row, "exact.delete16") == 0)
		return change(ask, 1, answer);
	fprintf(stderr, "peer: no row %s\n", row);
	return -1;
}
