// peer ROW SECONDS INPUT [EAL options]: runs DPDK's side of one row, prints one line of JSON.
// INPUT is the file that `linerate bench input ROW` wrote, or "-".

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_version.h>

#include "peer.h"

// "ring.spsc.2core.bulk32" and "pool.cache.get_put32" end in their bulk; "single" is 1.
static unsigned bulk_of(const char *row)
{
	const char *end = row + strlen(row);
	while (end > row && end[-1] >= '0' && end[-1] <= '9')
		end--;
	unsigned n = (unsigned)strtoul(end, NULL, 10);
	return n == 0 ? 1 : n;
}

static int starts(const char *row, const char *with)
{
	return strncmp(row, with, strlen(with)) == 0;
}

static int measure(const struct ask *ask, struct answer *answer)
{
	const char *row = ask->row;
	if (starts(row, "ring.spsc.1core."))
		return ring_one_core(ask, 0, answer);
	if (starts(row, "ring.mpmc.1core."))
		return ring_one_core(ask, 1, answer);
	if (starts(row, "ring.spsc.2core."))
		return ring_two_cores(ask, 0, answer);
	if (starts(row, "ring.mpmc.2core."))
		return ring_two_cores(ask, 1, answer);
	if (starts(row, "pool.cache.get_put"))
		return pool_in_cache(ask, answer);
	if (starts(row, "pool.beyond.get_put"))
		return pool_beyond_cache(ask, answer);
	if (strcmp(row, "probe.core2core") == 0)
		return ring_round_trip(ask, answer);
	if (starts(row, "parse."))
		return parse_row(ask, answer);
	if (starts(row, "rss.") || strcmp(row, "steer.connect") == 0)
		return rss_row(ask, answer);
	if (starts(row, "exact."))
		return exact_row(ask, answer);
	if (starts(row, "lpm4."))
		return lpm4_row(ask, answer);
	if (starts(row, "lpm6."))
		return lpm6_row(ask, answer);
	if (starts(row, "acl."))
		return acl_row(ask, answer);
	if (starts(row, "flow."))
		return flow_row(ask, answer);
	if (starts(row, "wheel."))
		return timers_row(ask, answer);
	if (starts(row, "meter."))
		return meter_row(ask, answer);
	if (starts(row, "reassembly."))
		return reassembly_row(ask, answer);
	if (starts(row, "pktgen."))
		return pktgen_row(ask, answer);
	if (starts(row, "l3fwd."))
		return l3fwd_row(ask, answer);
	fprintf(stderr, "peer: no row %s\n", row);
	return -1;
}

int main(int argc, char **argv)
{
	if (argc < 4) {
		fprintf(stderr, "usage: peer ROW SECONDS INPUT [EAL options]\n");
		return 2;
	}
	struct ask ask = { argv[1], strtod(argv[2], NULL), bulk_of(argv[1]), argv[3] };
	struct answer answer = { 0 };

	argv[3] = argv[0];
	if (rte_eal_init(argc - 3, argv + 3) < 0) {
		fprintf(stderr, "peer: rte_eal_init failed\n");
		return 1;
	}
	if (measure(&ask, &answer) != 0) {
		fprintf(stderr, "peer: %s failed\n", ask.row);
		rte_eal_cleanup();
		return 1;
	}
	printf("{\"row\":\"%s\",\"value\":%.4f,\"unit\":\"%s\",\"pages\":\"%s\","
	       "\"peer_name\":\"%s %s\",\"detail\":{%s}}\n",
	       ask.row, answer.value, answer.unit == NULL ? "ns" : answer.unit, page_name(answer.memory),
	       rte_version(), answer.what, answer.detail);
	rte_eal_cleanup();
	return 0;
}
