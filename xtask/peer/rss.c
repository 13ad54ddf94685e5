// rte_thash: Toeplitz in bulk and one by one, and a port for a queue.

#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_thash.h>

#include "peer.h"

enum {
	TUPLES = 2048,
	BURST = 32,
	KEY = 40,
	RETA_LOG = 7,
	QUEUES = 8,
	PORTS = 1000, // that are asked for at once
	PORT_BYTE = 10, // the destination port of an IPv4 tuple
};

static const uint8_t microsoft_key[KEY] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
	0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
	0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

static uint8_t tuples[TUPLES * 36] __rte_cache_aligned;
static uint32_t words[TUPLES * 9] __rte_cache_aligned;
static uint32_t host_key[KEY / 4 + 1];

// Network order for the bulk form, host order for softrss.
static void fill(unsigned bytes)
{
	uint64_t x = 0x9e3779b97f4a7c15;
	for (unsigned i = 0; i < TUPLES * bytes; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		tuples[i] = (uint8_t)(x >> 32);
	}
	memcpy(words, tuples, TUPLES * bytes);
	for (unsigned i = 0; i < TUPLES * bytes / 4; i++)
		words[i] = rte_be_to_cpu_32(words[i]);
	rte_convert_rss_key((const uint32_t *)microsoft_key, host_key, KEY);
}

// `bytes` is a constant where it is called, so that DPDK's inline functions unroll.
static __rte_always_inline double bulk(int bytes, uint64_t cycles)
{
#ifdef RTE_THASH_GFNI_DEFINED
	static uint64_t matrices[KEY];
	static uint8_t *at[TUPLES];
	uint32_t hashes[BURST];
	rte_thash_complete_matrix(matrices, microsoft_key, KEY);
	for (int i = 0; i < TUPLES; i++)
		at[i] = tuples + i * bytes;
	uint64_t rounds = 0, start = rte_rdtsc_precise(), now;
	do {
		for (int i = 0; i < TUPLES; i += BURST) {
			rte_thash_gfni_bulk(matrices, bytes, at + i, hashes, BURST);
			asm volatile("" : : "r"(hashes) : "memory");
		}
		rounds++;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	for (int i = 0; i < BURST; i++) {
		uint32_t soft = rte_softrss_be(words + (TUPLES - BURST + i) * bytes / 4, bytes / 4,
			(const uint8_t *)host_key);
		if (hashes[i] != soft)
			return -1;
	}
	return ns_per(now - start, rounds * TUPLES);
#else
	fprintf(stderr, "peer: no GFNI on this machine, so no rte_thash_gfni_bulk\n");
	return -1;
#endif
}

static __rte_always_inline double soft(int bytes, uint64_t cycles)
{
	uint32_t hashes[BURST];
	uint64_t rounds = 0, start = rte_rdtsc_precise(), now;
	do {
		for (int i = 0; i < TUPLES; i += BURST) {
			for (int j = 0; j < BURST; j++)
				hashes[j] = rte_softrss_be(words + (i + j) * bytes / 4, bytes / 4,
					(const uint8_t *)host_key);
			asm volatile("" : : "r"(hashes) : "memory");
		}
		rounds++;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, rounds * TUPLES);
}

static uint32_t soft_hash(const uint8_t *key, const uint8_t *tuple)
{
	uint32_t tuple_words[3];
	memcpy(tuple_words, tuple, sizeof(tuple_words));
	for (int i = 0; i < 3; i++)
		tuple_words[i] = rte_be_to_cpu_32(tuple_words[i]);
	return rte_softrss(tuple_words, 3, key);
}

// One tuple's ports: each RETA entry of the queue in turn, and in each the high bits of the port, which the
// helper leaves alone, counted up. So no port comes twice and no callback has to look.
static __rte_always_inline int
thousand(struct rte_thash_ctx *ctx, struct rte_thash_subtuple_helper *helper, uint8_t *tuple,
	uint32_t queue, uint16_t *ports)
{
	int found = 0;
	for (uint32_t slot = queue; slot < 1 << RETA_LOG; slot += QUEUES)
		for (uint32_t high = 0; high < 1 << (16 - RETA_LOG); high++) {
			uint16_t port = rte_cpu_to_be_16((uint16_t)(high << RETA_LOG));
			memcpy(tuple + PORT_BYTE, &port, 2);
			if (rte_thash_adjust_tuple(ctx, helper, tuple, 12, slot, 1, NULL, NULL) != 0)
				continue;
			memcpy(&port, tuple + PORT_BYTE, 2);
			ports[found] = rte_be_to_cpu_16(port);
			if (++found == PORTS)
				return found;
		}
	return found;
}

#ifdef RTE_THASH_GFNI_DEFINED
// The same by the steps of adjust_tuple that matter, with the hash inlined: DPDK as distributions build it
// falls back to rte_softrss inside adjust_tuple, since GFNI is not in their baseline.
static __rte_always_inline int
thousand_gfni(const uint64_t *matrices, struct rte_thash_subtuple_helper *helper, uint8_t *tuple,
	uint32_t queue, uint16_t *ports)
{
	int found = 0;
	for (uint32_t slot = queue; slot < 1 << RETA_LOG; slot += QUEUES)
		for (uint32_t high = 0; high < 1 << (16 - RETA_LOG); high++) {
			uint16_t port = (uint16_t)(high << RETA_LOG), sent = rte_cpu_to_be_16(port);
			memcpy(tuple + PORT_BYTE, &sent, 2);
			uint32_t hash = rte_thash_gfni(matrices, tuple, 12);
			ports[found] = port ^ (uint16_t)rte_thash_get_complement(helper, hash, slot);
			if (++found == PORTS)
				return found;
		}
	return found;
}
#endif

static int inverse(const struct ask *ask, struct answer *answer)
{
	uint8_t key[KEY];
	memcpy(key, microsoft_key, KEY);
	struct rte_thash_ctx *ctx = rte_thash_init_ctx("inverse", KEY, RETA_LOG, key, 0);
	if (ctx == NULL || rte_thash_add_helper(ctx, "port", 16, PORT_BYTE * 8) != 0)
		return -1;
	struct rte_thash_subtuple_helper *helper = rte_thash_get_helper(ctx, "port");
	uint64_t matrices[KEY];
	rte_thash_complete_matrix(matrices, rte_thash_get_key(ctx), KEY);
	uint16_t ports[PORTS];
	uint64_t found = 0, wrong = 0, asked = 0;
	double by_call[2] = { 0, 0 };
	for (int turn = 0; turn < 4; turn++) {
		int inlined = turn & 1;
		uint64_t cycles = cycles_of(turn < 2 ? ask->seconds / 20 : ask->seconds / 2);
		uint64_t start = rte_rdtsc_precise(), now;
#ifndef RTE_THASH_GFNI_DEFINED
		if (inlined)
			continue;
#endif
		found = 0, asked = 0;
		do {
			for (int i = 0; i < 16; i++, asked++) {
				uint8_t *tuple = tuples + asked % TUPLES * 12;
#ifdef RTE_THASH_GFNI_DEFINED
				if (inlined)
					found += thousand_gfni(matrices, helper, tuple, asked % QUEUES, ports);
				else
#endif
					found += thousand(ctx, helper, tuple, asked % QUEUES, ports);
				asm volatile("" : : "r"(ports) : "memory");
			}
			now = rte_rdtsc_precise();
		} while (now - start < cycles);
		by_call[inlined] = ns_per(now - start, found);
	}
	int inlined = by_call[1] > 0 && by_call[1] < by_call[0];
	answer->value = by_call[inlined];
	// Untimed: do they land on the queue, by DPDK's own key and plain hash?
	uint64_t checked = 0;
	for (uint32_t i = 0; i < 64; i++) {
		uint8_t *tuple = tuples + i * 12;
		int count = 0;
		if (!inlined)
			count = thousand(ctx, helper, tuple, i % QUEUES, ports);
#ifdef RTE_THASH_GFNI_DEFINED
		else
			count = thousand_gfni(matrices, helper, tuple, i % QUEUES, ports);
#endif
		for (int j = 0; j < count; j++, checked++) {
			uint16_t port = rte_cpu_to_be_16(ports[j]);
			memcpy(tuple + PORT_BYTE, &port, 2);
			uint32_t hash = soft_hash(rte_thash_get_key(ctx), tuple);
			wrong += (hash & ((1 << RETA_LOG) - 1)) % QUEUES != i % QUEUES;
		}
	}
	answer->what = inlined ? "rte_thash_gfni + get_complement" : "rte_thash_adjust_tuple";
	snprintf(answer->detail, sizeof(answer->detail),
		"\"reta\":%d,\"queues\":%d,\"ports\":%d,\"found\":%.1f,\"checked\":%lu,\"wrong_queue\":%lu,"
		"\"key\":\"rewritten\",\"adjust_tuple\":%.3f",
		1 << RETA_LOG, QUEUES, PORTS, (double)found / (double)asked, checked, wrong,
		by_call[0]);
	rte_thash_free_ctx(ctx);
	return found > 0 ? 0 : -1;
}

// A free port whose answers come to a queue, as mTCP and F-Stack look for one: ports at random, until one is
// free and its hash is the queue's. Half of the ports are in use.
static int connect_by_trial(const struct ask *ask, struct answer *answer)
{
	static uint8_t used[65536];
	uint64_t x = 0x2545f4914f6cdd1d, tries = 0, found = 0;
	for (int i = 0; i < 65536; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		used[i] = (x >> 32) & 1;
	}
	for (int warm = 1; warm >= 0; warm--) {
		uint64_t cycles = cycles_of(warm ? ask->seconds / 10 : ask->seconds);
		uint64_t start = rte_rdtsc_precise(), now;
		tries = 0, found = 0;
		do {
			for (int i = 0; i < 16; i++, found++) {
				uint32_t tuple[3], queue = found % QUEUES;
				memcpy(tuple, words + found % TUPLES * 3, sizeof(tuple));
				for (;; tries++) {
					x ^= x << 13, x ^= x >> 7, x ^= x << 17;
					uint16_t port = (uint16_t)(x >> 32) | 1024;
					if (used[port])
						continue;
					tuple[2] = (tuple[2] & 0xffff0000) | port;
					uint32_t hash = rte_softrss_be(tuple, 3, (const uint8_t *)host_key);
					if ((hash & ((1 << RETA_LOG) - 1)) % QUEUES == queue)
						break;
				}
				asm volatile("" : : "r"(tuple) : "memory");
			}
			now = rte_rdtsc_precise();
		} while (now - start < cycles);
		answer->value = ns_per(now - start, found);
	}
	answer->what = "rte_softrss_be, by trial";
	snprintf(answer->detail, sizeof(answer->detail), "\"queues\":%d,\"tries\":%.1f", QUEUES,
		(double)tries / (double)found);
	return answer->value > 0 ? 0 : -1;
}

int rss_row(const struct ask *ask, struct answer *answer)
{
	int inverted = strcmp(ask->row, "rss.inverse") == 0, gfni = strstr(ask->row, "toeplitz") != NULL;
	int bytes = strstr(ask->row, ".36") != NULL ? 36 : 12;
	fill(bytes);
	answer->memory = tuples;
	if (inverted)
		return inverse(ask, answer);
	if (strcmp(ask->row, "steer.connect") == 0)
		return connect_by_trial(ask, answer);
	for (int warm = 1; warm >= 0; warm--) {
		uint64_t cycles = cycles_of(warm ? ask->seconds / 10 : ask->seconds);
		if (gfni)
			answer->value = bytes == 36 ? bulk(36, cycles) : bulk(12, cycles);
		else
			answer->value = bytes == 36 ? soft(36, cycles) : soft(12, cycles);
	}
	answer->what = gfni ? "rte_thash_gfni_bulk" : "rte_softrss_be";
	snprintf(answer->detail, sizeof(answer->detail), "\"tuples\":%d,\"burst\":%d", TUPLES, BURST);
	return answer->value > 0 ? 0 : -1;
}
