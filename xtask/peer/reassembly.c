// rte_ip_frag: IPv4 datagrams of 2 and of 8 fragments, from a fragment in the burst to the freed chain.
// Sizes, sources and orders are those of apps/micro/src/reassembly.rs; fragments are
// written between the timed parts, as there. Each size of the table's buckets is tried for a moment, and
// the fastest is timed. The datagram is a chain of mbufs; what it costs to make one buffer of it, as ours
// is, is shown beside.

#include <stdio.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_ip_frag.h>
#include <rte_mbuf.h>

#include "peer.h"
#include "random.h"

enum { MBUFS = 8191, CACHE = 512, L2 = 14, SOURCES = 256, DATAGRAMS_MAX = 1024, PREFETCH = 3 };

enum order { LINEAR, REVERSED, INTERLEAVED };

struct shape {
	unsigned datagrams, fragments, each, last;
	enum order order;
};

struct bench {
	struct shape shape;
	struct rte_mempool *pool;
	struct rte_ip_frag_tbl *table;
	struct rte_ip_frag_death_row death_row;
	struct rte_mbuf *burst[256];
	uint64_t number, whole, seen;
};

static void write_one(const struct shape *shape, struct rte_mbuf *m, uint64_t datagram, unsigned fragment)
{
	int last = fragment + 1 == shape->fragments;
	unsigned len = last ? shape->last : shape->each;
	char *data = rte_pktmbuf_append(m, L2 + sizeof(struct rte_ipv4_hdr) + len);
	static const uint8_t ethernet[L2] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0 };
	memcpy(data, ethernet, L2);
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(data + L2);
	memset(ip, 0, sizeof(*ip));
	ip->version_ihl = 0x45;
	ip->total_length = rte_cpu_to_be_16(sizeof(*ip) + len);
	ip->packet_id = rte_cpu_to_be_16((uint16_t)datagram);
	ip->fragment_offset = rte_cpu_to_be_16((last ? 0 : RTE_IPV4_HDR_MF_FLAG) | fragment * shape->each / 8);
	ip->time_to_live = 64;
	ip->next_proto_id = 17;
	ip->src_addr = rte_cpu_to_be_32(0x0a000000 | (uint32_t)(mixed(datagram) % SOURCES));
	ip->dst_addr = rte_cpu_to_be_32(0x0a010001);
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	m->l2_len = L2;
	m->l3_len = sizeof(*ip);
}

static int write_batch(struct bench *bench)
{
	const struct shape *shape = &bench->shape;
	unsigned count = shape->datagrams * shape->fragments;
	if (rte_pktmbuf_alloc_bulk(bench->pool, bench->burst, count) != 0)
		return -1;
	for (unsigned turn = 0; turn < count; turn++) {
		unsigned datagram = turn / shape->fragments, fragment = turn % shape->fragments;
		if (shape->order == REVERSED)
			fragment = shape->fragments - 1 - fragment;
		if (shape->order == INTERLEAVED) {
			datagram = turn % shape->datagrams;
			fragment = turn / shape->datagrams;
		}
		write_one(shape, bench->burst[turn], bench->number + datagram, fragment);
	}
	bench->number += shape->datagrams;
	return 0;
}

static __rte_always_inline void reassemble(struct bench *bench, int linear)
{
	unsigned count = bench->shape.datagrams * bench->shape.fragments;
	uint64_t now = rte_rdtsc();
	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = bench->burst[i];
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, L2);
		m = rte_ipv4_frag_reassemble_packet(bench->table, &bench->death_row, m, now, ip);
		if (m == NULL)
			continue;
		if (linear && rte_pktmbuf_linearize(m) != 0)
			bench->whole--;
		bench->whole++;
		rte_pktmbuf_free(m);
	}
	bench->seen += bench->shape.datagrams;
	rte_ip_frag_free_death_row(&bench->death_row, PREFETCH);
}

static __rte_always_inline double run(struct bench *bench, int linear, uint64_t cycles)
{
	uint64_t timed = 0, batches = 0, began = rte_rdtsc_precise();
	do {
		for (int i = 0; i < 64; i++, batches++) {
			if (write_batch(bench) != 0)
				return -1;
			uint64_t start = rte_rdtsc();
			reassemble(bench, linear);
			timed += rte_rdtsc() - start;
		}
	} while (rte_rdtsc_precise() - began < cycles);
	return ns_per(timed, batches * bench->shape.datagrams * bench->shape.fragments);
}

static struct rte_ip_frag_tbl *table_of(uint32_t ways)
{
	// As many datagrams as ours holds, 30 seconds.
	return rte_ip_frag_table_create(DATAGRAMS_MAX, ways, DATAGRAMS_MAX, 30 * rte_get_tsc_hz(),
		(int)rte_socket_id());
}

int reassembly_row(const struct ask *ask, struct answer *answer)
{
	static struct bench bench;
	bench.shape = strstr(ask->row, ".8") != NULL ? (struct shape){ 4, 8, 64, 64, LINEAR }
		: (struct shape){ 16, 2, 704, 696, LINEAR };
	if (strstr(ask->row, ".reversed") != NULL)
		bench.shape.order = REVERSED;
	if (strstr(ask->row, ".interleaved") != NULL) {
		bench.shape.order = INTERLEAVED;
		bench.shape.datagrams = bench.shape.fragments == 8 ? 32 : 64;
	}
	bench.pool = rte_pktmbuf_pool_create("pool", MBUFS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
		(int)rte_socket_id());
	if (bench.pool == NULL)
		return -1;
	uint32_t best_ways = 0;
	double best = 0;
	for (uint32_t ways = 2; ways <= 16; ways *= 2) {
		if ((bench.table = table_of(ways)) == NULL)
			return -1;
		double ns = run(&bench, 0, cycles_of(ask->seconds / 10));
		if (ns > 0 && (best_ways == 0 || ns < best)) {
			best = ns;
			best_ways = ways;
		}
		rte_ip_frag_table_destroy(bench.table);
	}
	if (best_ways == 0 || (bench.table = table_of(best_ways)) == NULL)
		return -1;
	run(&bench, 1, cycles_of(ask->seconds / 10));
	double linear = run(&bench, 1, cycles_of(ask->seconds / 2));
	run(&bench, 0, cycles_of(ask->seconds / 10));
	answer->value = run(&bench, 0, cycles_of(ask->seconds));
	answer->what = "rte_ipv4_frag_reassemble_packet";
	answer->memory = bench.pool;
	snprintf(answer->detail, sizeof(answer->detail),
		"\"ns_in_one_buffer\":%.2f,\"bucket_entries\":%u,\"ns_per_datagram\":%.2f,\"whole_percent\":%.1f",
		linear, best_ways, answer->value * bench.shape.fragments,
		100.0 * (double)bench.whole / (double)bench.seen);
	rte_ip_frag_table_destroy(bench.table);
	return answer->value > 0 ? 0 : -1;
}
