// Parsing and checking a burst: rte_net_get_ptype for types and header lengths, then both checksums.
//
// The frames are contiguous, so the checks that need no mbuf walk are the faster ones. Frames are
// prefetched as l3fwd does, and a whole burst ahead too; the faster of the two is reported.

#include <stdio.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_prefetch.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include "peer.h"
#include "random.h"

enum {
	FRAMES = 4096, // as on our side
	FRAME_BYTES = 60,
	BURST = 64,
	AHEAD = 8,
};

static uint64_t next_random(void)
{
	static uint64_t number;
	return mixed(++number);
}

// Ethernet, IPv4 without options, UDP (half of them) or TCP; both checksums right.
static void build(uint8_t *frame)
{
	struct rte_ether_hdr *ether = (struct rte_ether_hdr *)frame;
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(ether + 1);
	for (int i = 0; i < FRAME_BYTES; i++)
		frame[i] = (uint8_t)next_random();
	ether->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	ip->version_ihl = 0x45;
	ip->total_length = rte_cpu_to_be_16(FRAME_BYTES - sizeof(*ether));
	ip->fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG);
	ip->next_proto_id = next_random() & 1 ? IPPROTO_UDP : IPPROTO_TCP;
	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	if (ip->next_proto_id == IPPROTO_UDP) {
		struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(ip + 1);
		udp->dgram_len = rte_cpu_to_be_16(FRAME_BYTES - sizeof(*ether) - sizeof(*ip));
		udp->dgram_cksum = 0;
		udp->dgram_cksum = rte_ipv4_udptcp_cksum(ip, udp);
	} else {
		struct rte_tcp_hdr *tcp = (struct rte_tcp_hdr *)(ip + 1);
		tcp->data_off = 5 << 4;
		tcp->cksum = 0;
		tcp->cksum = rte_ipv4_udptcp_cksum(ip, tcp);
	}
}

static __rte_always_inline unsigned one(struct rte_mbuf *m)
{
	struct rte_net_hdr_lens lens;
	uint32_t ptype = rte_net_get_ptype(m, &lens, RTE_PTYPE_ALL_MASK);
	m->packet_type = ptype;
	if (!RTE_ETH_IS_IPV4_HDR(ptype))
		return 0;
	const struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, void *, lens.l2_len);
	if (rte_raw_cksum(ip, lens.l3_len) != 0xffff)
		return 0;
	uint32_t l4 = ptype & RTE_PTYPE_L4_MASK;
	if (l4 != RTE_PTYPE_L4_UDP && l4 != RTE_PTYPE_L4_TCP)
		return 0;
	return rte_ipv4_udptcp_cksum_verify(ip, (const uint8_t *)ip + lens.l3_len) == 0;
}

static __rte_always_inline double
run(struct rte_mbuf **frames, int whole_burst, uint64_t cycles, uint64_t *good)
{
	uint64_t packets = 0, start = rte_rdtsc_precise(), now;
	*good = 0;
	do {
		for (unsigned first = 0; first < FRAMES; first += BURST) {
			struct rte_mbuf **burst = frames + first;
			for (int i = 0; i < (whole_burst ? BURST : AHEAD); i++)
				rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
			for (int i = 0; i < BURST; i++) {
				if (!whole_burst && i + AHEAD < BURST)
					rte_prefetch0(rte_pktmbuf_mtod(burst[i + AHEAD], void *));
				*good += one(burst[i]);
			}
		}
		packets += FRAMES;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return *good == packets ? ns_per(now - start, packets) : -1;
}

enum { SLICES = 256, SLICE_BYTES = 1500 };
static uint8_t slices[SLICES][SLICE_BYTES];

static __rte_always_inline double over_slices(int crc, uint64_t cycles)
{
	uint64_t rounds = 0, start = rte_rdtsc_precise(), now;
	uint32_t all = 0;
	do {
		for (int i = 0; i < SLICES; i++)
			all ^= crc ? rte_hash_crc(slices[i], SLICE_BYTES, 0xffffffff)
				   : rte_raw_cksum(slices[i], SLICE_BYTES);
		asm volatile("" : "+r"(all));
		rounds++;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, rounds * SLICES);
}

static int slices_row(const struct ask *ask, int crc, struct answer *answer)
{
	for (int i = 0; i < SLICES * SLICE_BYTES; i++)
		slices[0][i] = (uint8_t)next_random();
	for (int warm = 1; warm >= 0; warm--)
		answer->value = over_slices(crc, cycles_of(warm ? ask->seconds / 10 : ask->seconds));
	answer->what = crc ? "rte_hash_crc" : "rte_raw_cksum";
	answer->memory = slices;
	snprintf(answer->detail, sizeof(answer->detail), "\"slices\":%d", SLICES);
	return 0;
}

int parse_row(const struct ask *ask, struct answer *answer)
{
	if (strcmp(ask->row, "parse.checksum.1500") == 0)
		return slices_row(ask, 0, answer);
	if (strcmp(ask->row, "parse.crc32c.1500") == 0)
		return slices_row(ask, 1, answer);
	static struct rte_mbuf *frames[FRAMES];
	struct rte_mempool *pool = rte_pktmbuf_pool_create("parse", FRAMES * 2 - 1, 0, 0,
		RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
	if (strcmp(ask->row, "parse.burst64") != 0 || pool == NULL ||
	    rte_pktmbuf_alloc_bulk(pool, frames, FRAMES) != 0)
		return -1;
	for (int i = 0; i < FRAMES; i++)
		build((uint8_t *)rte_pktmbuf_append(frames[i], FRAME_BYTES));
	uint64_t good;
	run(frames, 0, cycles_of(ask->seconds / 10), &good);
	double ahead = run(frames, 0, cycles_of(ask->seconds / 2), &good);
	double whole = run(frames, 1, cycles_of(ask->seconds / 2), &good);
	answer->value = ahead < whole ? ahead : whole;
	answer->what = "rte_net_get_ptype, rte_raw_cksum, rte_ipv4_udptcp_cksum_verify";
	answer->memory = frames[0];
	snprintf(answer->detail, sizeof(answer->detail),
		"\"frames\":%d,\"prefetch_8\":%.3f,\"prefetch_64\":%.3f", FRAMES, ahead, whole);
	return answer->value > 0 ? 0 : -1;
}
