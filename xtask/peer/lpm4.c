// rte_lpm and rte_fib (DIR24_8) with the routes and addresses of the input file.
//
// The file, in 32-bit little-endian words: how many routes, addresses and further routes; each route
// as address, length, next hop; the addresses; the further routes, which the table lacks. Next hops
// are below 2^15, so that every entry size from two bytes up can hold them.
//
// Lookups: each of DPDK's functions runs for a share of the time, then the fastest of them for all of
// it, which is the answer.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_lpm.h>
#include <rte_malloc.h>

#include "peer.h"

enum {
	BURST = 64,
	BATCH = 100,
	NO_ROUTE = 0x7fff,
};

struct route {
	uint32_t address, depth, next_hop;
};

struct input {
	uint32_t routes_n, addresses_n, more_n;
	struct route *routes, *more;
	uint32_t *addresses;
};

static void *read_words(FILE *file, size_t words, size_t room)
{
	uint32_t *at = rte_malloc(NULL, (words + room) * sizeof(uint32_t), 64);
	if (at == NULL || fread(at, sizeof(uint32_t), words, file) != words)
		return NULL;
	return at;
}

static int read_input(const char *path, struct input *in)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL || fread(in, sizeof(uint32_t), 3, file) != 3)
		return -1;
	in->routes = read_words(file, 3 * (size_t)in->routes_n, 0);
	in->addresses = read_words(file, in->addresses_n, BURST);
	in->more = read_words(file, 3 * (size_t)in->more_n, 0);
	fclose(file);
	return in->routes && in->addresses && in->more && in->addresses_n >= BURST ? 0 : -1;
}

// How many groups of 256 the routes beyond /24 can need.
static uint32_t groups(const struct input *in)
{
	uint32_t n = 256;
	for (uint32_t i = 0; i < in->routes_n; i++)
		n += in->routes[i].depth > 24;
	for (uint32_t i = 0; i < in->more_n; i++)
		n += in->more[i].depth > 24;
	return n;
}

static struct rte_lpm *make_lpm(const struct input *in)
{
	struct rte_lpm_config config = {
		.max_rules = in->routes_n + in->more_n + 1,
		.number_tbl8s = groups(in),
	};
	return rte_lpm_create("lpm4", rte_socket_id(), &config);
}

// Through its API: it looks for a rule among all of the same depth, so this takes half a minute.
static struct rte_lpm *load_lpm(const struct input *in)
{
	struct rte_lpm *lpm = make_lpm(in);
	for (uint32_t i = 0; lpm != NULL && i < in->routes_n; i++) {
		const struct route *r = &in->routes[i];
		if (rte_lpm_add(lpm, r->address, r->depth, r->next_hop) != 0)
			return NULL;
	}
	return lpm;
}

// The same table for lookups alone, in seconds: routes of up to 24 bits are written as rte_lpm_add
// writes them, shortest first, without the rules of which lookups know nothing. The longer ones are
// added after them.
static struct rte_lpm *fill_lpm(const struct input *in)
{
	struct rte_lpm *lpm = make_lpm(in);
	for (uint32_t depth = 1; lpm != NULL && depth <= 32; depth++)
		for (uint32_t i = 0; i < in->routes_n; i++) {
			const struct route *r = &in->routes[i];
			if (r->depth != depth)
				continue;
			if (depth > 24) {
				if (rte_lpm_add(lpm, r->address, depth, r->next_hop) != 0)
					return NULL;
				continue;
			}
			struct rte_lpm_tbl_entry entry = {
				.next_hop = r->next_hop, .valid = 1, .depth = depth,
			};
			for (uint32_t k = 0; k < 1U << (24 - depth); k++)
				lpm->tbl24[(r->address >> 8) + k] = entry;
		}
	return lpm;
}

static struct rte_fib *load_fib(const struct input *in, enum rte_fib_dir24_8_nh_sz size)
{
	struct rte_fib_conf config = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = NO_ROUTE,
		.max_routes = (int)(in->routes_n + in->more_n + 1),
		.dir24_8 = { .nh_sz = size, .num_tbl8 = groups(in) },
	};
	char name[16];
	snprintf(name, sizeof(name), "fib4-%d", size);
	struct rte_fib *fib = rte_fib_create(name, rte_socket_id(), &config);
	for (uint32_t i = 0; fib != NULL && i < in->routes_n; i++) {
		const struct route *r = &in->routes[i];
		if (rte_fib_add(fib, r->address, r->depth, r->next_hop) != 0)
			return NULL;
	}
	return fib;
}

// Nothing that was looked up may be optimised away.
static volatile uint64_t sink;

typedef void (*lookup)(const void *table, const uint32_t *addresses);

static void lookup_x4(const void *table, const uint32_t *addresses)
{
	uint32_t hops[BURST];
	for (int i = 0; i < BURST; i += 4) {
		xmm_t four = _mm_loadu_si128((const xmm_t *)(addresses + i));
		rte_lpm_lookupx4(table, four, hops + i, NO_ROUTE);
	}
	sink += hops[0] ^ hops[BURST - 1];
}

static void lookup_bulk(const void *table, const uint32_t *addresses)
{
	uint32_t hops[BURST];
	rte_lpm_lookup_bulk(table, addresses, hops, BURST);
	sink += hops[0] ^ hops[BURST - 1];
}

static void lookup_fib(const void *table, const uint32_t *addresses)
{
	uint64_t hops[BURST];
	rte_fib_lookup_bulk((struct rte_fib *)table, (uint32_t *)addresses, hops, BURST);
	sink += hops[0] ^ hops[BURST - 1];
}

static double time_of(lookup look, const void *table, const struct input *in, double seconds)
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

static int look_up(const struct ask *ask, const struct input *in, struct answer *answer)
{
	static const struct {
		const char *name;
		enum rte_fib_dir24_8_nh_sz size;
		enum rte_fib_lookup_type type;
	} fibs[] = {
		{ "rte_fib 2B scalar", RTE_FIB_DIR24_8_2B, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO },
		{ "rte_fib 2B inline", RTE_FIB_DIR24_8_2B, RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE },
		{ "rte_fib 2B AVX-512", RTE_FIB_DIR24_8_2B, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 },
		{ "rte_fib 4B scalar", RTE_FIB_DIR24_8_4B, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO },
		{ "rte_fib 4B AVX-512", RTE_FIB_DIR24_8_4B, RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512 },
	};
	const int ways = 2 + RTE_DIM(fibs);
	struct rte_lpm *lpm = fill_lpm(in);
	struct rte_fib *two = load_fib(in, RTE_FIB_DIR24_8_2B), *four = load_fib(in, RTE_FIB_DIR24_8_4B);
	if (lpm == NULL || two == NULL || four == NULL)
		return -1;
	size_t used = 0;
	double least = 1e9;
	int fastest = 0;
	for (int way = 0; way <= ways; way++) {
		int which = way == ways ? fastest : way;
		const char *name = which == 0 ? "rte_lpm_lookupx4" : "rte_lpm_lookup_bulk";
		lookup look = which == 0 ? lookup_x4 : lookup_bulk;
		const void *table = lpm;
		if (which >= 2) {
			name = fibs[which - 2].name;
			look = lookup_fib;
			table = fibs[which - 2].size == RTE_FIB_DIR24_8_2B ? two : four;
			if (rte_fib_select_lookup((struct rte_fib *)table, fibs[which - 2].type) != 0)
				continue; // this CPU has no such form
		}
		if (way == ways) {
			time_of(look, table, in, ask->seconds / 10);
			answer->value = time_of(look, table, in, ask->seconds);
			answer->what = name;
			answer->memory = lpm;
			break;
		}
		time_of(look, table, in, ask->seconds / 20);
		double ns = time_of(look, table, in, ask->seconds / ways);
		if (ns < least) {
			least = ns;
			fastest = way;
		}
		used += snprintf(answer->detail + used, sizeof(answer->detail) - used,
			"%s\"%s\":%.2f", way ? "," : "", name, ns);
	}
	return 0;
}

typedef int (*change)(void *table, const struct route *route, int add);

static int change_lpm(void *table, const struct route *r, int add)
{
	return add ? rte_lpm_add(table, r->address, r->depth, r->next_hop)
		   : rte_lpm_delete(table, r->address, r->depth);
}

static int change_fib(void *table, const struct route *r, int add)
{
	return add ? rte_fib_add(table, r->address, r->depth, r->next_hop)
		   : rte_fib_delete(table, r->address, r->depth);
}

// Adds a batch and deletes it again, then the next batch. Returns ns per route added and deleted.
static double time_changes(change change, void *table, const struct input *in, double seconds)
{
	uint64_t cycles = cycles_of(seconds), changed = 0, start = rte_rdtsc_precise();
	uint32_t at = 0;
	do {
		for (int add = 1; add >= 0; add--)
			for (uint32_t i = at; i < at + BATCH; i++)
				if (change(table, &in->more[i], add) != 0)
					return -1;
		changed += BATCH;
		at += BATCH;
		if (at + BATCH > in->more_n)
			at = 0;
	} while (rte_rdtsc_precise() - start < cycles);
	return ns_per(rte_rdtsc_precise() - start, changed);
}

static int update(const struct ask *ask, const struct input *in, struct answer *answer)
{
	if (in->more_n < BATCH)
		return -1;
	struct rte_fib *fib = load_fib(in, RTE_FIB_DIR24_8_4B);
	if (fib == NULL)
		return -1;
	double fib_ns = time_changes(change_fib, fib, in, ask->seconds / 2);
	rte_fib_free(fib);
	uint64_t start = rte_rdtsc_precise();
	struct rte_lpm *lpm = load_lpm(in);
	if (lpm == NULL)
		return -1;
	double load_s = ns_per(rte_rdtsc_precise() - start, 1) / 1e9;
	answer->value = time_changes(change_lpm, lpm, in, ask->seconds);
	answer->what = "rte_lpm_add/delete";
	answer->memory = lpm;
	snprintf(answer->detail, sizeof(answer->detail),
		"\"routes\":%u,\"rte_fib_add/delete\":%.1f,\"load_s\":%.1f", in->routes_n, fib_ns, load_s);
	return answer->value > 0 ? 0 : -1;
}

int lpm4_row(const struct ask *ask, struct answer *answer)
{
	struct input in;
	if (read_input(ask->input, &in) != 0) {
		fprintf(stderr, "peer: cannot read %s\n", ask->input);
		return -1;
	}
	if (strncmp(ask->row, "lpm4.lookup.", 12) == 0)
		return look_up(ask, &in, answer);
	if (strcmp(ask->row, "lpm4.update.1m") == 0)
		return update(ask, &in, answer);
	fprintf(stderr, "peer: no row %s\n", ask->row);
	return -1;
}
