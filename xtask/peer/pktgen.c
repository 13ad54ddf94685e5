// Generating: what testpmd's txonly mode does for each frame, into a net_ring loop, and out again. testpmd
// cannot do that itself: in txonly mode nobody empties the ring.

#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_udp.h>

#include "peer.h"

enum {
	MBUFS = 16383,
	CACHE = RTE_MEMPOOL_CACHE_MAX_SIZE, // 512
	BURST = 64,
	FRAME = 60, // in memory: 64 with the check sequence
};

struct __attribute__((packed)) headers { // __rte_packed is deprecated since 25.03
	struct rte_ether_hdr ether;
	struct rte_ipv4_hdr ip;
	struct rte_udp_hdr udp;
};

static struct headers template_headers(void)
{
	struct headers all;
	memset(&all, 0, sizeof(all));
	all.ether.dst_addr.addr_bytes[0] = 2;
	all.ether.src_addr.addr_bytes[0] = 2;
	all.ether.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
	all.ip.version_ihl = RTE_IPV4_VHL_DEF;
	all.ip.total_length = rte_cpu_to_be_16(FRAME - sizeof(all.ether));
	all.ip.time_to_live = 64;
	all.ip.next_proto_id = IPPROTO_UDP;
	all.ip.src_addr = rte_cpu_to_be_32(RTE_IPV4(198, 18, 0, 1));
	all.ip.dst_addr = rte_cpu_to_be_32(RTE_IPV4(198, 19, 0, 1));
	all.ip.hdr_checksum = rte_ipv4_cksum(&all.ip);
	all.udp.src_port = rte_cpu_to_be_16(9);
	all.udp.dst_port = rte_cpu_to_be_16(9);
	all.udp.dgram_len = rte_cpu_to_be_16(FRAME - sizeof(all.ether) - sizeof(all.ip));
	return all;
}

// One turn: a burst from the pool, its metadata and headers, into the ring, out of it, back to the pool.
static __rte_always_inline uint64_t
turn(uint16_t port, struct rte_mempool *pool, const struct headers *all)
{
	struct rte_mbuf *frames[BURST];
	uint16_t sent = 0, came;

	if (likely(rte_mempool_get_bulk(pool, (void **)frames, BURST) == 0)) {
		for (int i = 0; i < BURST; i++) {
			struct rte_mbuf *frame = frames[i];
			rte_pktmbuf_reset_headroom(frame);
			frame->ol_flags &= RTE_MBUF_F_EXTERNAL;
			frame->vlan_tci = 0;
			frame->vlan_tci_outer = 0;
			frame->l2_len = sizeof(struct rte_ether_hdr);
			frame->l3_len = sizeof(struct rte_ipv4_hdr);
			frame->next = NULL;
			frame->nb_segs = 1;
			frame->data_len = FRAME;
			frame->pkt_len = FRAME;
			rte_memcpy(rte_pktmbuf_mtod(frame, void *), all, sizeof(*all));
		}
		sent = rte_eth_tx_burst(port, 0, frames, BURST);
		if (unlikely(sent < BURST))
			rte_pktmbuf_free_bulk(frames + sent, BURST - sent);
	}
	came = rte_eth_rx_burst(port, 0, frames, BURST);
	rte_pktmbuf_free_bulk(frames, came);
	return sent;
}

static double
mpps(uint16_t port, struct rte_mempool *pool, const struct headers *all, uint64_t cycles)
{
	uint64_t frames = 0, start = rte_rdtsc_precise(), now;
	do {
		for (int i = 0; i < 64; i++)
			frames += turn(port, pool, all);
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return (double)frames / ((double)(now - start) / (double)rte_get_tsc_hz()) / 1e6;
}

int pktgen_row(const struct ask *ask, struct answer *answer)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("pool", MBUFS, CACHE, 0,
		RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
	struct rte_eth_conf conf = { 0 };
	struct headers all = template_headers();
	uint16_t port;

	if (pool == NULL || rte_eal_hotplug_add("vdev", "net_ring0", "") != 0
	    || rte_eth_dev_get_port_by_name("net_ring0", &port) != 0
	    || rte_eth_dev_configure(port, 1, 1, &conf) != 0
	    || rte_eth_rx_queue_setup(port, 0, RING_SLOTS, rte_socket_id(), NULL, pool) != 0
	    || rte_eth_tx_queue_setup(port, 0, RING_SLOTS, rte_socket_id(), NULL) != 0
	    || rte_eth_dev_start(port) != 0)
		return -1;
	mpps(port, pool, &all, cycles_of(ask->seconds / 10));
	answer->value = mpps(port, pool, &all, cycles_of(ask->seconds));
	answer->unit = "Mpps";
	answer->what = "txonly's work over net_ring";
	answer->memory = pool;
	snprintf(answer->detail, sizeof(answer->detail), "\"burst\":%d,\"bytes_in_memory\":%d", BURST, FRAME);
	rte_eth_dev_stop(port);
	return answer->value > 0 ? 0 : -1;
}
