// What the peer programs share: how a row is asked for and how a figure is handed back.
// Everything that is timed here is DPDK's; these files only drive it.
#ifndef PEER_H
#define PEER_H

#include <stdint.h>

#include <rte_cycles.h>
#include <rte_lcore.h>
#include <rte_memory.h>

// The ring's size on both sides of the comparison.
#define RING_SLOTS 1024
// The largest bulk that a row asks for.
#define BULK_MAX 256

struct ask {
	const char *row;
	double seconds;    // of each timed run
	unsigned bulk;     // 1, 8, 32 or 256
	const char *input; // the file that both sides work on, "-" where there is none
};

struct answer {
	double value;        // in the unit below
	const char *unit;    // none for ns per element
	const char *what;    // which of DPDK's functions gave it
	const void *memory;  // an address inside what was measured, for its page size
	char detail[256];    // the inside of a JSON object
};

int ring_one_core(const struct ask *ask, int mpmc, struct answer *answer);
int ring_two_cores(const struct ask *ask, int mpmc, struct answer *answer);
int ring_round_trip(const struct ask *ask, struct answer *answer);
int pool_in_cache(const struct ask *ask, struct answer *answer);
int pool_beyond_cache(const struct ask *ask, struct answer *answer);
int parse_row(const struct ask *ask, struct answer *answer);
int rss_row(const struct ask *ask, struct answer *answer);
int exact_row(const struct ask *ask, struct answer *answer);
int lpm4_row(const struct ask *ask, struct answer *answer);
int lpm6_row(const struct ask *ask, struct answer *answer);
int acl_row(const struct ask *ask, struct answer *answer);
int flow_row(const struct ask *ask, struct answer *answer);
int timers_row(const struct ask *ask, struct answer *answer);
int meter_row(const struct ask *ask, struct answer *answer);
int reassembly_row(const struct ask *ask, struct answer *answer);
int pktgen_row(const struct ask *ask, struct answer *answer);
int l3fwd_row(const struct ask *ask, struct answer *answer);

static inline double ns_per(uint64_t cycles, uint64_t elements)
{
	return (double)cycles * 1e9 / (double)rte_get_tsc_hz() / (double)elements;
}

static inline uint64_t cycles_of(double seconds)
{
	return (uint64_t)(seconds * (double)rte_get_tsc_hz());
}

static inline const char *page_name(const void *memory)
{
	const struct rte_memseg_list *list = rte_mem_virt2memseg_list(memory);
	switch (list == NULL ? 0 : list->page_sz) {
	case 1ULL << 30:
		return "1 GiB";
	case 2ULL << 20:
		return "2 MiB";
	case 4096:
		return "4 KiB";
	default:
		return "unknown";
	}
}

#endif
