// port ROLE SECONDS BYTES BURST [EAL options, --vdev among them]: one end of a measurement between
// two processes over DPDK's ports, one line of JSON. What `linerate bench port --hold` does over
// ours: the roles, the times and the figures are its. It goes on until its standard input ends,
// since an end of memif crashes where the other one goes first.

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#include "peer.h"

enum {
	MBUFS = 16383,
	CACHE = RTE_MEMPOOL_CACHE_MAX_SIZE,
	BURST_MOST = 64,
	PORTS_MOST = 2,
	START_SECONDS = 30, // the other end may not be there yet
	LOST_MS = 100,
	POLLS = 4096, // empty ones between two looks at the clock
	BINS = 100000, // of 10 ns: up to 1 ms
	BIN_NS = 10,
	PAUSES = 16, // of who was refused
	HELD_MS = 10, // between two looks at standard input
};

enum role { SOURCE, SINK, EXCHANGE, ECHO, PING };

static const char *const roles[] = { "source", "sink", "exchange", "echo", "ping" };

struct totals {
	uint64_t sent, refused, received;
};

static enum role role;
static unsigned bytes, burst_size;
static uint16_t ports;
static struct rte_mempool *pool;
// What is to be sent next, as much of it as was refused.
static struct rte_mbuf *next[BURST_MOST];
static uint16_t waiting;
static struct totals totals;

// Round trips of one frame at a time.
static struct {
	uint64_t sent, lost, count;
	uint64_t bins[BINS];
} pings;

// An Ethernet frame of the local experimental type (IEEE 802).
static void write_frame(struct rte_mempool *of, void *arg, void *object, unsigned number)
{
	struct rte_mbuf *frame = object;
	uint8_t *data = (uint8_t *)frame->buf_addr + RTE_PKTMBUF_HEADROOM;
	(void)of, (void)arg, (void)number;
	memset(data, 0, bytes);
	data[0] = data[6] = 2;
	data[12] = 0x88;
	data[13] = 0xb5;
}

// Fills up what is to be sent next, to so many.
static __rte_always_inline int fill(uint16_t wanted)
{
	if (waiting >= wanted)
		return 1;
	if (unlikely(rte_pktmbuf_alloc_bulk(pool, next + waiting, wanted - waiting) != 0))
		return 0;
	for (; waiting < wanted; waiting++) {
		next[waiting]->data_len = (uint16_t)bytes;
		next[waiting]->pkt_len = bytes;
	}
	return 1;
}

static __rte_always_inline uint16_t push(uint16_t wanted)
{
	uint16_t sent;
	if (unlikely(!fill(wanted)) && waiting == 0)
		return 0;
	sent = rte_eth_tx_burst(0, 0, next, waiting);
	waiting -= sent;
	if (unlikely(waiting > 0 && sent > 0))
		memmove(next, next + sent, waiting * sizeof(next[0]));
	return sent;
}

static __rte_always_inline void send_burst(void)
{
	totals.sent += push((uint16_t)burst_size);
	totals.refused += waiting;
	// Who asks at once again takes the ring's line from who is to write there.
	for (int i = 0; waiting > 0 && i < PAUSES; i++)
		rte_pause();
}

static __rte_always_inline uint16_t take(uint16_t port)
{
	struct rte_mbuf *came[BURST_MOST];
	uint16_t count = rte_eth_rx_burst(port, 0, came, (uint16_t)burst_size);
	if (count > 0)
		rte_pktmbuf_free_bulk(came, count);
	totals.received += count;
	return count;
}

// What the only port brings goes back with its addresses swapped, what one of two brings goes out
// of the other.
static __rte_always_inline void forward(uint16_t port, int swap)
{
	struct rte_mbuf *came[BURST_MOST];
	uint16_t count = rte_eth_rx_burst(port, 0, came, (uint16_t)burst_size), sent;
	if (count == 0)
		return;
	totals.received += count;
	for (uint16_t i = 0; swap && i < count; i++) {
		struct rte_ether_hdr *header = rte_pktmbuf_mtod(came[i], struct rte_ether_hdr *);
		struct rte_ether_addr dst = header->dst_addr;
		header->dst_addr = header->src_addr;
		header->src_addr = dst;
	}
	sent = rte_eth_tx_burst(swap ? port : port ^ 1, 0, came, count);
	totals.sent += sent;
	totals.refused += count - sent;
	if (unlikely(sent < count))
		rte_pktmbuf_free_bulk(came + sent, count - sent);
}

static __rte_always_inline void ping(void)
{
	if (pings.sent == 0) {
		uint64_t now = rte_rdtsc();
		if (push(1) == 1) {
			totals.sent++;
			pings.sent = now;
		}
		return;
	}
	for (int i = 0; i < POLLS; i++) {
		if (take(ports - 1) > 0) {
			uint64_t bin = (uint64_t)ns_per(rte_rdtsc() - pings.sent, 1) / BIN_NS;
			pings.bins[bin < BINS ? bin : BINS - 1]++;
			pings.count++;
			pings.sent = 0;
			return;
		}
	}
	if (rte_rdtsc() - pings.sent > cycles_of(LOST_MS / 1e3)) {
		pings.lost++;
		pings.sent = 0;
	}
}

static __rte_always_inline void step(enum role as)
{
	switch (as) {
	case SOURCE:
		send_burst();
		break;
	case SINK:
		for (uint16_t port = 0; port < ports; port++)
			take(port);
		break;
	case EXCHANGE:
		send_burst();
		take(ports - 1);
		break;
	case ECHO:
		if (ports == 1)
			forward(0, 1);
		else
			for (uint16_t port = 0; port < ports; port++)
				forward(port, 0);
		break;
	case PING:
		ping();
		break;
	}
}

static uint64_t moved(void)
{
	return role == SOURCE ? totals.sent : totals.received;
}

// A loop of its own for each role. Returns the cycles that it took.
#define REPEAT(as) \
	do { \
		for (int i = 0; i < 64; i++) \
			step(as); \
		now = rte_rdtsc(); \
	} while (now - start < cycles && !(until_moved && moved() > 0))

static uint64_t repeat(uint64_t cycles, int until_moved)
{
	uint64_t start = rte_rdtsc(), now;
	switch (role) {
	case SOURCE:
		REPEAT(SOURCE);
		break;
	case SINK:
		REPEAT(SINK);
		break;
	case EXCHANGE:
		REPEAT(EXCHANGE);
		break;
	case ECHO:
		REPEAT(ECHO);
		break;
	default:
		REPEAT(PING);
		break;
	}
	return now - start;
}

static double percentile(double percent)
{
	uint64_t wanted = (uint64_t)((double)pings.count * percent / 100.0), seen = 0;
	for (int bin = 0; bin < BINS; bin++) {
		seen += pings.bins[bin];
		if (seen > wanted)
			return (double)bin * BIN_NS + BIN_NS / 2.0;
	}
	return (double)BINS * BIN_NS;
}

static int start(uint16_t port)
{
	struct rte_eth_conf conf = { 0 };
	int socket = rte_eth_dev_socket_id(port);
	if (rte_eth_dev_configure(port, 1, 1, &conf) != 0
	    || rte_eth_rx_queue_setup(port, 0, RING_SLOTS, socket, NULL, pool) != 0
	    || rte_eth_tx_queue_setup(port, 0, RING_SLOTS, socket, NULL) != 0)
		return -1;
	return rte_eth_dev_start(port);
}

static int is_held(void)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	char byte;
	if (poll(&input, 1, 0) == 0)
		return 1;
	return read(STDIN_FILENO, &byte, 1) > 0;
}

static int run(double seconds)
{
	double warm_up = seconds / 5 > 0.1 ? seconds / 5 : 0.1, mpps_of;
	struct totals before, in;
	uint64_t tried;

	repeat(cycles_of(START_SECONDS), 1);
	if (moved() == 0) {
		fprintf(stderr, "port: no frame moved within %d s\n", START_SECONDS);
		return -1;
	}
	repeat(cycles_of(warm_up), 0);
	before = totals;
	mpps_of = 1e3 / ns_per(repeat(cycles_of(seconds), 0), 1); // what one frame in that time is
	in = totals;
	in.sent -= before.sent;
	in.refused -= before.refused;
	in.received -= before.received;
	printf("{\"row\":\"port.%s\",", roles[role]);
	if (role == PING)
		printf("\"value\":%.1f,\"unit\":\"ns\",", percentile(50));
	else
		printf("\"value\":%.4f,\"unit\":\"Mpps\",",
		       (double)(role == SOURCE ? in.sent : in.received) * mpps_of);
	printf("\"pages\":\"%s\",\"peer_name\":\"%s\",\"detail\":{", page_name(pool),
	       rte_version());
	if (role == PING)
		printf("\"p99_ns\":%.1f,\"p999_ns\":%.1f,\"trips\":%lu,\"lost\":%lu,",
		       percentile(99), percentile(99.9), pings.count, pings.lost);
	tried = in.sent + in.refused;
	printf("\"sent_mpps\":%.4f,\"refused_percent\":%.2f}}\n", (double)in.sent * mpps_of,
	       100.0 * (double)in.refused / (double)(tried > 0 ? tried : 1));
	fflush(stdout);
	while (is_held())
		repeat(cycles_of(HELD_MS / 1e3), 0);
	return 0;
}

int main(int argc, char **argv)
{
	int code = 1, known = -1;
	double seconds;

	for (int i = 0; argc >= 5 && i < (int)RTE_DIM(roles); i++)
		if (strcmp(argv[1], roles[i]) == 0)
			known = i;
	if (known < 0) {
		fprintf(stderr, "usage: port source|sink|exchange|echo|ping SECONDS BYTES BURST "
				"[EAL options]\n");
		return 2;
	}
	role = (enum role)known;
	seconds = strtod(argv[2], NULL);
	bytes = (unsigned)strtoul(argv[3], NULL, 10);
	burst_size = RTE_MIN((unsigned)strtoul(argv[4], NULL, 10), (unsigned)BURST_MOST);

	argv[4] = argv[0];
	if (rte_eal_init(argc - 4, argv + 4) < 0) {
		fprintf(stderr, "port: rte_eal_init failed\n");
		return 1;
	}
	ports = rte_eth_dev_count_avail();
	pool = rte_pktmbuf_pool_create("frames", MBUFS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
				       rte_socket_id());
	if (ports == 0 || ports > PORTS_MOST || pool == NULL) {
		fprintf(stderr, "port: %u ports, one or two wanted; %s\n", ports,
			pool == NULL ? "no memory for frames" : "name them by --vdev");
		goto end;
	}
	rte_mempool_obj_iter(pool, write_frame, NULL);
	for (uint16_t port = 0; port < ports; port++) {
		if (start(port) != 0) {
			fprintf(stderr, "port: port %u does not start\n", port);
			goto end;
		}
	}
	code = run(seconds) == 0 ? 0 : 1;
end:
	// Not by way of the ports: to stop they would ask the other end, which may be gone.
	_exit(code);
}
