// rte_fib6 (TRIE) and rte_lpm6 with the routes and addresses of the input file.
//
// The file, in 32-bit little-endian words: how many routes, addresses and further routes; each route
// as address (16 bytes in network order), length, next hop; the addresses; the further routes, which
// the table lacks. Routes are in order of address and length. Next hops are below 2^15, so that every
// entry size can hold them.
//
// Lookups: each of DPDK's functions is tried, then the fastest of them timed, which is the answer.

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_fib6.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>

#include "peer.h"

enum {
	BURST = 64,
	BATCH = 100,
	NO_ROUTE = 0x7fff,
};

struct route {
	uint8_t address[16];
	uint32_t depth, next_hop;
};

struct input {
	uint32_t routes_n, addresses_n, more_n;
	struct route *routes, *more;
	uint8_t (*addresses)[16];
};

static void *read_items(FILE *file, size_t n, size_t size)
{
	void *at = rte_malloc(NULL, n * size + 64, 64);
	if (at == NULL || fread(at, size, n, file) != n)
		return NULL;
	return at;
}

static int read_input(const char *path, struct input *in)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL || fread(in, sizeof(uint32_t), 3, file) != 3)
		return -1;
	in->routes = read_items(file, in->routes_n, sizeof(struct route));
	in->addresses = read_items(file, in->addresses_n, 16);
	in->more = read_items(file, in->more_n, sizeof(struct route));
	fclose(file);
	return in->routes && in->addresses && in->more && in->addresses_n >= BURST ? 0 : -1;
}

static int same(const uint8_t *a, const uint8_t *b, int bytes)
{
	return memcmp(a, b, bytes) == 0;
}

// How many groups of 256 the routes need: one for each beginning of 24, 32, 40 .. bits that a longer
// route has. They are in order, so those with the same beginning follow one another.
static uint32_t groups(const struct route *routes, uint32_t n)
{
	uint32_t groups = 0;
	for (int bytes = 3; bytes < 16; bytes++) {
		const struct route *last = NULL;
		for (uint32_t i = 0; i < n; i++) {
			if (routes[i].depth <= (uint32_t)bytes * 8)
				continue;
			groups += last == NULL || !same(last->address, routes[i].address, bytes);
			last = &routes[i];
		}
	}
	return groups;
}

// DPDK reserves more than that: what each route could need next to the routes around it.
static uint32_t room(const struct input *in)
{
	return groups(in->routes, in->routes_n) + in->more_n * 13 + in->routes_n / 2 + 1024;
}

static struct rte_fib6 *load_fib(const struct input *in, enum rte_fib_trie_nh_sz size)
{
	struct rte_fib6_conf config = {
		.type = RTE_FIB6_TRIE,
		.default_nh = NO_ROUTE,
		.max_routes = (int)(in->routes_n + in->more_n + 1),
		.trie = { .nh_sz = size, .num_tbl8 = room(in) },
	};
	if (size == RTE_FIB6_TRIE_2B)
		config.trie.num_tbl8 = RTE_MIN(config.trie.num_tbl8, 0x7fffU);
	char name[16];
	snprintf(name, sizeof(name), "fib6-%d", size);
	struct rte_fib6 *fib = rte_fib6_create(name, rte_socket_id(), &config);
	for (uint32_t i = 0; fib != NULL && i < in->routes_n; i++) {
		const struct route *r = &in->routes[i];
		if (rte_fib6_add(fib, r->address, r->depth, r->next_hop) != 0) {
			rte_fib6_free(fib);
			return NULL;
		}
	}
	return fib;
}

static struct rte_lpm6 *load_lpm(const struct input *in)
{
	struct rte_lpm6_config config = {
		.max_rules = in->routes_n + in->more_n + 1,
		.number_tbl8s = room(in),
	};
	struct rte_lpm6 *lpm = rte_lpm6_create("lpm6", rte_socket_id(), &config);
	for (uint32_t i = 0; lpm != NULL && i < in->routes_n; i++) {
		const struct route *r = &in->routes[i];
		if (rte_lpm6_add(lpm, r->address, r->depth, r->next_hop) != 0)
			return NULL;
	}
	return lpm;
}

// Nothing that was looked up may be optimised away.
static volatile uint64_t sink;

typedef void (*lookup)(void *table, uint8_t (*addresses)[16]);

static void lookup_fib(void *table, uint8_t (*addresses)[16])
{
	uint64_t hops[BURST];
	rte_fib6_lookup_bulk(table, addresses, hops, BURST);
	sink += hops[0] ^ hops[BURST - 1];
}

static void lookup_lpm(void *table, uint8_t (*addresses)[16])
{
	int32_t hops[BURST];
	rte_lpm6_lookup_bulk_func(table, addresses, hops, BURST);
	sink += hops[0] ^ hops[BURST - 1];
}

static double time_of(lookup look, void *table, const struct input *in, double seconds)
{
	uint64_t cycles = cycles_of(seconds), looked = 0, start = rte_rdtsc_precise(), now;
	uint32_t at = 0;
	do {
		for (int i = 0; i < 256; i++) {
			look(table, in->addresses + at);
			at += BURST;
			if (at + BURST > in->addresses_n)
				at = 0;
		}
		looked += 256 * BURST;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, looked);
}

static void note(struct answer *answer, const char *name, double ns)
{
	size_t used = strlen(answer->detail);
	snprintf(answer->detail + used, sizeof(answer->detail) - used, "%s\"%s\":%.2f",
		used ? "," : "", name, ns);
	if (answer->what == NULL || ns < answer->value) {
		answer->value = ns;
		answer->what = name;
	}
}

struct way {
	const char *name;
	enum rte_fib_trie_nh_sz size; // rte_lpm6: 0
	enum rte_fib6_lookup_type type;
};

// 2 bytes cannot name the groups of a full table; rte_fib6_create says so then.
static const struct way WAYS[] = {
	{ "rte_fib6 2B AVX-512", RTE_FIB6_TRIE_2B, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 },
	{ "rte_fib6 4B scalar", RTE_FIB6_TRIE_4B, RTE_FIB6_LOOKUP_TRIE_SCALAR },
	{ "rte_fib6 4B AVX-512", RTE_FIB6_TRIE_4B, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 },
	{ "rte_fib6 8B AVX-512", RTE_FIB6_TRIE_8B, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512 },
	{ "rte_lpm6", 0, 0 },
};

// Loads the routes, warms up, and times. Negative where DPDK cannot hold them so.
static double time_way(const struct way *way, const struct input *in, double seconds,
	struct answer *answer)
{
	double ns = -1;
	if (way->size == 0) {
		struct rte_lpm6 *lpm = load_lpm(in);
		if (lpm != NULL) {
			answer->memory = lpm;
			time_of(lookup_lpm, lpm, in, seconds / 10);
			ns = time_of(lookup_lpm, lpm, in, seconds);
			rte_lpm6_free(lpm);
		}
		return ns;
	}
	struct rte_fib6 *fib = load_fib(in, way->size);
	if (fib != NULL && rte_fib6_select_lookup(fib, way->type) == 0) {
		answer->memory = rte_fib6_get_dp(fib);
		time_of(lookup_fib, fib, in, seconds / 10);
		ns = time_of(lookup_fib, fib, in, seconds);
	}
	rte_fib6_free(fib);
	return ns;
}

// Each way is tried, and the fastest then timed as linerate is.
static int look_up(const struct ask *ask, const struct input *in, struct answer *answer)
{
	int fastest = 0;
	for (int way = 0; way < (int)RTE_DIM(WAYS); way++) {
		double ns = time_way(&WAYS[way], in, ask->seconds / 4, answer);
		if (ns > 0) {
			note(answer, WAYS[way].name, ns);
			if (answer->what == WAYS[way].name)
				fastest = way;
		}
	}
	answer->value = time_way(&WAYS[fastest], in, ask->seconds, answer);
	return answer->value > 0 ? 0 : -1;
}

typedef int (*change)(void *table, const struct route *route, int add);

static int change_lpm(void *table, const struct route *r, int add)
{
	return add ? rte_lpm6_add(table, r->address, r->depth, r->next_hop)
		   : rte_lpm6_delete(table, r->address, r->depth);
}

static int change_fib(void *table, const struct route *r, int add)
{
	return add ? rte_fib6_add(table, r->address, r->depth, r->next_hop)
		   : rte_fib6_delete(table, r->address, r->depth);
}

// Adds a batch and deletes it again, then the next batch. Returns ns per route added and deleted.
// rte_fib6 of 22.11 forgets some of the groups that deleted routes had reserved, and after a few
// thousand changes says that it is full: the time until then counts.
static double time_changes(change change, void *table, const struct input *in, double seconds)
{
	uint64_t cycles = cycles_of(seconds), changed = 0, start = rte_rdtsc_precise(), end = start;
	uint32_t at = 0;
	do {
		for (int add = 1; add >= 0; add--)
			for (uint32_t i = at; i < at + BATCH; i++) {
				int error = change(table, &in->more[i], add);
				if (error == -ENOSPC && changed > 0)
					return ns_per(end - start, changed);
				if (error != 0)
					return -1;
			}
		end = rte_rdtsc_precise();
		changed += BATCH;
		at += BATCH;
		if (at + BATCH > in->more_n)
			at = 0;
	} while (end - start < cycles);
	return ns_per(end - start, changed);
}

static int update(const struct ask *ask, const struct input *in, struct answer *answer)
{
	if (in->more_n < BATCH)
		return -1;
	struct rte_fib6 *fib = load_fib(in, RTE_FIB6_TRIE_4B);
	if (fib == NULL)
		return -1;
	answer->value = time_changes(change_fib, fib, in, ask->seconds);
	answer->what = "rte_fib6_add/delete";
	answer->memory = rte_fib6_get_dp(fib);
	struct rte_lpm6 *lpm = load_lpm(in);
	double lpm_ns = lpm == NULL ? -1 : time_changes(change_lpm, lpm, in, ask->seconds / 2);
	snprintf(answer->detail, sizeof(answer->detail),
		"\"routes\":%u,\"rte_lpm6_add/delete\":%.1f", in->routes_n, lpm_ns);
	return answer->value > 0 ? 0 : -1;
}

int lpm6_row(const struct ask *ask, struct answer *answer)
{
	struct input in;
	if (read_input(ask->input, &in) != 0) {
		fprintf(stderr, "peer: cannot read %s\n", ask->input);
		return -1;
	}
	if (strncmp(ask->row, "lpm6.lookup.", 12) == 0)
		return look_up(ask, &in, answer);
	if (strcmp(ask->row, "lpm6.update.160k") == 0)
		return update(ask, &in, answer);
	fprintf(stderr, "peer: no row %s\n", ask->row);
	return -1;
}
