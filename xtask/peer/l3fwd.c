// Layer-3 forwarding with DPDK's tables: the steps of its l3fwd example, for rows that the example cannot
// run (its tables are small) and for where it is not installed.
//
// The input is three files: INPUT has rules in the example's syntax, of which the last field is a way (its
// lowest bit is the port); INPUT.0.pcap and INPUT.1.pcap have what each port plays. Rows that end in "1k"
// play it with net_pcap's infinite_rx, which is DPDK's own loop; the others with a loop that copies each
// frame into a fresh mbuf, as that does, but from one array instead of from as many mbufs.
//
// As in the example: a packet type for each packet, lookups by four (LPM) or in bulk (hash), a blend of
// 16 bytes for both addresses, one less to live and one more in the checksum, and a queue for each port.
// Bursts of 32 and of 64 are tried for a moment, and the faster is timed.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_ip.h>
#include <rte_lpm.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include "peer.h"

enum {
	PORTS = 2,
	BURST_MAX = 64,
	FRAME = 60,
	WAYS = 1024,
	FLOWS = 4000000,
	NOWHERE = WAYS - 1,
};

// What a port plays, and where it is.
struct loop {
	uint8_t (*frames)[64];
	uint32_t count, next;
};

// The key as the example has it: 16 bytes from the time to live on, all but the five-tuple masked.
union key {
	struct {
		uint8_t ttl, proto;
		uint16_t checksum;
		uint32_t src, dst;
		uint16_t src_port, dst_port;
	};
	__m128i xmm;
};

struct bench {
	struct rte_mempool *pool;
	struct loop loops[PORTS];
	int devices; // whether the ports are devices
	struct rte_lpm *lpm;
	struct rte_hash *hash;
	__m128i macs[WAYS];
	uint16_t port_of[WAYS];
	struct rte_mbuf *queue[PORTS][BURST_MAX];
	unsigned queued[PORTS];
	uint64_t sent, missed;
};

static uint64_t mixed(uint64_t number)
{
	uint64_t z = number + 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

// The flow of that number, as apps/micro/src/l3fwd.rs makes it.
static union key make_flow(uint64_t number)
{
	uint64_t low = mixed(number), high = mixed(~number);
	return (union key) { {
		.proto = IPPROTO_UDP,
		.src = rte_cpu_to_be_32((uint32_t)low),
		.dst = rte_cpu_to_be_32((uint32_t)(low >> 32)),
		.src_port = rte_cpu_to_be_16((uint16_t)high),
		.dst_port = rte_cpu_to_be_16((uint16_t)(high >> 16)),
	} };
}

static int load_frames(const char *input, int port, struct loop *loop)
{
	char path[4096];
	uint32_t header[6], record[4];
	snprintf(path, sizeof(path), "%s.%d.pcap", input, port);
	FILE *file = fopen(path, "rb");
	if (file == NULL || fread(header, sizeof(header), 1, file) != 1)
		return -1;
	uint32_t room = 1024;
	loop->frames = rte_malloc(NULL, (size_t)room * 64, 64);
	while (loop->frames != NULL && fread(record, sizeof(record), 1, file) == 1) {
		if (record[2] != FRAME)
			return -1;
		if (loop->count == room)
			loop->frames = rte_realloc(loop->frames, (size_t)(room *= 2) * 64, 64);
		if (loop->frames == NULL || fread(loop->frames[loop->count], FRAME, 1, file) != 1)
			return -1;
		loop->count++;
	}
	fclose(file);
	return loop->count >= BURST_MAX ? 0 : -1;
}

static int open_device(const char *input, int port, struct rte_mempool *pool)
{
	char name[32], options[4096];
	struct rte_eth_conf config = { 0 };
	uint16_t number;
	snprintf(name, sizeof(name), "net_pcap%d", port);
	snprintf(options, sizeof(options), "rx_pcap=%s.%d.pcap,infinite_rx=1", input, port);
	if (rte_eal_hotplug_add("vdev", name, options) != 0
			|| rte_eth_dev_get_port_by_name(name, &number) != 0 || number != port)
		return -1;
	if (rte_eth_dev_configure(number, 1, 1, &config) != 0
			|| rte_eth_rx_queue_setup(number, 0, 1024, rte_socket_id(), NULL, pool) != 0
			|| rte_eth_tx_queue_setup(number, 0, 1024, rte_socket_id(), NULL) != 0)
		return -1;
	return rte_eth_dev_start(number);
}

static int make_lpm(const char *input, struct bench *bench)
{
	FILE *file = fopen(input, "r");
	struct rte_lpm_config config = { .max_rules = 1 << 20, .number_tbl8s = 1 << 16 };
	uint32_t (*routes)[3] = NULL, count = 0, room = 0;
	unsigned a, b, c, d, depth, way;
	bench->lpm = rte_lpm_create("l3fwd", rte_socket_id(), &config);
	if (file == NULL || bench->lpm == NULL)
		return -1;
	while (fscanf(file, "R%u.%u.%u.%u/%u %u\n", &a, &b, &c, &d, &depth, &way) == 6) {
		if (count == room) {
			room = room == 0 ? 1024 : 2 * room;
			routes = realloc(routes, room * sizeof(*routes));
		}
		if (routes == NULL || way >= NOWHERE)
			return -1;
		routes[count][0] = a << 24 | b << 16 | c << 8 | d;
		routes[count][1] = depth;
		routes[count++][2] = way;
	}
	fclose(file);
	// As rte_lpm_add writes them, shortest first, without the rules, of which lookups know nothing: it
	// takes half a minute to add a million (see lpm4.c).
	for (uint32_t len = 1; len <= 32; len++)
		for (uint32_t i = 0; i < count; i++) {
			struct rte_lpm_tbl_entry entry = { .next_hop = routes[i][2], .valid = 1, .depth = len };
			if (routes[i][1] != len)
				continue;
			if (len > 24) {
				if (rte_lpm_add(bench->lpm, routes[i][0], len, routes[i][2]) != 0)
					return -1;
				continue;
			}
			for (uint32_t k = 0; k < 1U << (24 - len); k++)
				bench->lpm->tbl24[(routes[i][0] >> 8) + k] = entry;
		}
	free(routes);
	return count > 0 ? 0 : -1;
}

static int make_hash(const char *input, int small, struct bench *bench)
{
	uint32_t limit = small ? 4 << 20 : FLOWS / 3 * 4; // the example's size; three of four entries used
	struct rte_hash_parameters parameters = {
		.name = "l3fwd",
		.entries = limit,
		.key_len = sizeof(union key),
		.hash_func = rte_hash_crc,
		.socket_id = (int)rte_socket_id(),
	};
	bench->hash = rte_hash_create(&parameters);
	if (bench->hash == NULL)
		return -1;
	if (!small) {
		for (uint64_t i = 0; i < FLOWS; i++) {
			union key key = make_flow(i);
			if (rte_hash_add_key_data(bench->hash, &key, (void *)(uintptr_t)(i & 1)) != 0)
				return -1;
		}
		return 0;
	}
	FILE *file = fopen(input, "r");
	unsigned a, b, c, d, e, f, g, h, to, from, proto, way;
	int count = 0;
	while (file != NULL && fscanf(file, "R%u.%u.%u.%u %u.%u.%u.%u %u %u %x %u\n",
			&a, &b, &c, &d, &e, &f, &g, &h, &to, &from, &proto, &way) == 12) {
		union key key = { {
			.proto = (uint8_t)proto,
			.dst = rte_cpu_to_be_32(a << 24 | b << 16 | c << 8 | d),
			.src = rte_cpu_to_be_32(e << 24 | f << 16 | g << 8 | h),
			.dst_port = rte_cpu_to_be_16((uint16_t)to),
			.src_port = rte_cpu_to_be_16((uint16_t)from),
		} };
		if (rte_hash_add_key_data(bench->hash, &key, (void *)(uintptr_t)way) != 0)
			return -1;
		count++;
	}
	return count > 0 ? 0 : -1;
}

static __rte_always_inline unsigned receive(struct bench *bench, int port, struct rte_mbuf **pkts, unsigned burst)
{
	if (bench->devices)
		return rte_eth_rx_burst(port, 0, pkts, burst);
	struct loop *loop = &bench->loops[port];
	if (rte_pktmbuf_alloc_bulk(bench->pool, pkts, burst) != 0)
		return 0;
	for (unsigned i = 0; i < burst; i++) {
		// As ours: what the next burst copies is asked for. Beyond the last frame it is some other line.
		rte_prefetch1(loop->frames[loop->next + BURST_MAX]);
		// Whole lines of constant length: as short as a copy can be.
		memcpy(rte_pktmbuf_mtod(pkts[i], void *), loop->frames[loop->next], 64);
		pkts[i]->data_len = FRAME;
		pkts[i]->pkt_len = FRAME;
		if (++loop->next == loop->count)
			loop->next = 0;
	}
	return burst;
}

static __rte_always_inline void transmit(struct bench *bench, int port)
{
	unsigned count = bench->queued[port], sent = count;
	if (bench->devices)
		sent = rte_eth_tx_burst(port, 0, bench->queue[port], count);
	else
		rte_pktmbuf_free_bulk(bench->queue[port], count);
	bench->sent += sent;
	if (sent < count)
		rte_pktmbuf_free_bulk(bench->queue[port] + sent, count - sent);
	bench->queued[port] = 0;
}

// The example's packet type: IPv4 without options, TCP or UDP above it, and nothing else, as a flag.
static __rte_always_inline int is_ipv4(const struct rte_mbuf *m, int with_ports)
{
	const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
	const struct rte_ipv4_hdr *ip = (const struct rte_ipv4_hdr *)(eth + 1);
	int is = eth->ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && ip->version_ihl == 0x45;
	return is && (!with_ports || ip->next_proto_id == IPPROTO_UDP || ip->next_proto_id == IPPROTO_TCP);
}

static __rte_always_inline void look_up_lpm(struct bench *bench, struct rte_mbuf **pkts, unsigned count, uint32_t *ways)
{
	const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
	for (unsigned i = 0; i < count; i += 4) {
		uint32_t dst[4];
		int all = 1;
		for (unsigned j = 0; j < 4; j++) {
			dst[j] = *rte_pktmbuf_mtod_offset(pkts[i + j], uint32_t *,
				sizeof(struct rte_ether_hdr) + offsetof(struct rte_ipv4_hdr, dst_addr));
			all &= pkts[i + j]->packet_type != 0;
		}
		if (likely(all)) {
			__m128i four = _mm_set_epi32(dst[3], dst[2], dst[1], dst[0]);
			rte_lpm_lookupx4(bench->lpm, _mm_shuffle_epi8(four, swap), ways + i, NOWHERE);
			continue;
		}
		for (unsigned j = 0; j < 4; j++)
			if (pkts[i + j]->packet_type == 0
					|| rte_lpm_lookup(bench->lpm, rte_be_to_cpu_32(dst[j]), ways + i + j) != 0)
				ways[i + j] = NOWHERE;
	}
}

static __rte_always_inline void look_up_hash(struct bench *bench, struct rte_mbuf **pkts, unsigned count, uint32_t *ways)
{
	const __m128i mask = _mm_set_epi32(-1, -1, -1, 0x0000ff00);
	union key keys[BURST_MAX];
	const void *pointers[BURST_MAX];
	void *data[BURST_MAX];
	uint64_t hits = 0;
	for (unsigned i = 0; i < count; i++) {
		const __m128i *from = rte_pktmbuf_mtod_offset(pkts[i], const __m128i *,
			sizeof(struct rte_ether_hdr) + offsetof(struct rte_ipv4_hdr, time_to_live));
		keys[i].xmm = _mm_and_si128(_mm_loadu_si128(from), mask);
		pointers[i] = &keys[i];
	}
	rte_hash_lookup_bulk_data(bench->hash, pointers, count, &hits, data);
	for (unsigned i = 0; i < count; i++)
		ways[i] = (hits >> i & 1) && pkts[i]->packet_type != 0 ? (uint32_t)(uintptr_t)data[i] : NOWHERE;
}

static __rte_always_inline void
forward(struct bench *bench, int port, unsigned burst, int exact)
{
	struct rte_mbuf *pkts[BURST_MAX];
	uint32_t ways[BURST_MAX];
	unsigned count = receive(bench, port, pkts, burst);
	for (unsigned i = 0; i < count; i++)
		pkts[i]->packet_type = is_ipv4(pkts[i], exact) ? RTE_PTYPE_L3_IPV4 : 0;
	if (exact)
		look_up_hash(bench, pkts, count, ways);
	else if (likely(count % 4 == 0))
		look_up_lpm(bench, pkts, count, ways);
	else
		for (unsigned i = 0; i < count; i++)
			ways[i] = NOWHERE; // net_pcap gives whole bursts
	for (unsigned i = 0; i < count; i++) {
		uint32_t way = ways[i];
		__m128i *front = rte_pktmbuf_mtod(pkts[i], __m128i *);
		struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(pkts[i], struct rte_ipv4_hdr *, sizeof(struct rte_ether_hdr));
		if (unlikely(way == NOWHERE)) {
			bench->missed++;
			rte_pktmbuf_free(pkts[i]);
			continue;
		}
		_mm_storeu_si128(front, _mm_blend_epi16(_mm_loadu_si128(front), bench->macs[way], 0x3f));
		ip->time_to_live--;
		ip->hdr_checksum++;
		unsigned to = bench->port_of[way], at = bench->queued[to];
		bench->queue[to][at] = pkts[i];
		bench->queued[to] = at + 1;
		if (at + 1 == burst)
			transmit(bench, to);
	}
}

static __rte_always_inline double time_with(struct bench *bench, unsigned burst, int exact, double seconds)
{
	uint64_t cycles = cycles_of(seconds), start = rte_rdtsc_precise(), now;
	bench->sent = 0;
	do {
		for (int i = 0; i < 64; i++)
			for (int port = 0; port < PORTS; port++)
				forward(bench, port, burst, exact);
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	double mpps = bench->sent / 1e6 / ((double)(now - start) / (double)rte_get_tsc_hz());
	for (int port = 0; port < PORTS; port++)
		transmit(bench, port);
	return mpps;
}

static double time_way(struct bench *bench, unsigned burst, int exact, double seconds)
{
	if (burst == 32)
		return exact ? time_with(bench, 32, 1, seconds) : time_with(bench, 32, 0, seconds);
	return exact ? time_with(bench, 64, 1, seconds) : time_with(bench, 64, 0, seconds);
}

int l3fwd_row(const struct ask *ask, struct answer *answer)
{
	struct bench *bench = rte_zmalloc(NULL, sizeof(*bench), 64);
	int exact = strncmp(ask->row, "l3fwd.em.", 9) == 0;
	int small = strcmp(ask->row + strlen(ask->row) - 3, ".1k") == 0;
	if (bench == NULL)
		return -1;
	bench->devices = small;
	bench->pool = rte_pktmbuf_pool_create("l3fwd", 8191, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
	if (bench->pool == NULL)
		return -1;
	for (int way = 0; way < WAYS; way++) {
		uint8_t macs[16] = { 2, 0, 0, 1, way >> 8, way, 2, 0, 0, 0, 1, way & 1 };
		memcpy(&bench->macs[way], macs, 16);
		bench->port_of[way] = way & 1;
	}
	for (int port = 0; port < PORTS; port++) {
		int failed = small ? open_device(ask->input, port, bench->pool)
				   : load_frames(ask->input, port, &bench->loops[port]);
		if (failed) {
			fprintf(stderr, "peer: port %d cannot play %s.%d.pcap\n", port, ask->input, port);
			return -1;
		}
	}
	if (exact ? make_hash(ask->input, small, bench) : make_lpm(ask->input, bench)) {
		fprintf(stderr, "peer: no table from %s\n", ask->input);
		return -1;
	}
	double with32 = time_way(bench, 32, exact, ask->seconds / 4);
	double with64 = time_way(bench, 64, exact, ask->seconds / 4);
	answer->value = time_way(bench, with32 > with64 ? 32 : 64, exact, ask->seconds);
	answer->unit = "Mpps";
	answer->what = exact ? (small ? "our equivalent of l3fwd em" : "rte_hash_lookup_bulk_data and rewrite")
			     : (small ? "our equivalent of l3fwd lpm" : "rte_lpm_lookupx4 and rewrite");
	answer->memory = bench;
	snprintf(answer->detail, sizeof(answer->detail),
		"\"loop\":\"%s\",\"burst32\":%.2f,\"burst64\":%.2f,\"missed\":%llu",
		small ? "net_pcap" : "copies from an array", with32, with64, (unsigned long long)bench->missed);
	if (bench->missed != 0)
		fprintf(stderr, "peer: %llu packets found no entry\n", (unsigned long long)bench->missed);
	return bench->missed == 0 ? 0 : -1;
}
