// stream sink PORT CONNECTIONS WARM SECONDS
// stream source ADDRESS PORT WARM SECONDS
//
// The kernel's end of TCP rows; needs no DPDK. A sink takes what so many connections bring, a source sends on
// one. Both begin to count WARM seconds after the last connection has been opened, and print what was carried in
// SECONDS: a sink what it has read, by connection, a source what its peer has acknowledged.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	PIECE = 128 << 10, // as iperf3
	MOST = 64,
	PATIENCE_S = 20,
};

static char piece[PIECE];

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static int failed(const char *what)
{
	fprintf(stderr, "stream: %s: %s\n", what, strerror(errno));
	return 1;
}

static void ready(void)
{
	printf("ready\n");
	fflush(stdout);
}

// Whether `fd` is ready before `until`.
static int waited(int fd, short events, double until)
{
	struct pollfd poll_fd = { fd, events, 0 };
	double left = until - now();
	return left > 0 && poll(&poll_fd, 1, (int)(left * 1e3) + 1) > 0;
}

static int sink(uint16_t port, int wanted, double warm, double seconds)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, MOST) != 0)
		return failed("listen");
	ready();
	struct pollfd fds[MOST];
	uint64_t read_before[MOST] = { 0 }, read_all[MOST] = { 0 };
	struct sockaddr_in peers[MOST];
	double until = now() + PATIENCE_S, from = 0;
	int open = 0, counts = 0;
	for (;;) {
		double time = now();
		if (open < wanted) {
			if (time > until)
				return failed("too few connections");
			// Those that are open are read meanwhile: they are not to fill their windows.
			if (waited(listener, POLLIN, time + (open == 0 ? 1 : 0.001))) {
				socklen_t length = sizeof(peers[0]);
				int fd = accept4(listener, (struct sockaddr *)&peers[open], &length, 0);
				if (fd < 0)
					return failed("accept");
				fds[open++] = (struct pollfd){ fd, POLLIN, 0 };
				from = now() + warm;
			}
		} else if (!counts && time >= from) {
			from = time;
			counts = 1;
			memcpy(read_before, read_all, sizeof(read_all));
		} else if (counts && time >= from + seconds) {
			seconds = time - from;
			break;
		}
		if (open == 0 || poll(fds, (nfds_t)open, open < wanted ? 0 : 10) <= 0)
			continue;
		for (int i = 0; i < open; i++) {
			if (fds[i].revents == 0)
				continue;
			ssize_t got = recv(fds[i].fd, piece, sizeof(piece), MSG_DONTWAIT);
			if (got > 0)
				read_all[i] += (uint64_t)got;
			else if (got == 0 || (errno != EAGAIN && errno != EINTR))
				return failed("a connection ended early");
		}
	}
	uint64_t all = 0;
	for (int i = 0; i < open; i++)
		all += read_all[i] - read_before[i];
	printf("{\"value\":%.6f,\"detail\":{\"seconds\":%.3f", (double)all * 8 / seconds / 1e9, seconds);
	for (int i = 0; i < open; i++)
		printf(",\"%s\":%.6f", inet_ntoa(peers[i].sin_addr),
			(double)(read_all[i] - read_before[i]) * 8 / seconds / 1e9);
	printf("}}\n");
	return 0;
}

static struct tcp_info info(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t length = sizeof(info);
	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
	return info;
}

static int source(const char *address, uint16_t port, double warm, double seconds)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return failed("address");
	int fd;
	for (double until = now() + PATIENCE_S;;) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		// As linerate; a namespace may have another default.
		if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
			return failed("cubic");
		if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
			break;
		if (now() > until)
			return failed("connect");
		close(fd);
		usleep(20000);
	}
	ready();
	double from = now() + warm;
	uint64_t acked = 0;
	for (int counts = 0;;) {
		double time = now();
		if (!counts && time >= from) {
			from = time;
			counts = 1;
			acked = info(fd).tcpi_bytes_acked;
		} else if (counts && time >= from + seconds) {
			seconds = time - from;
			break;
		}
		if (send(fd, piece, sizeof(piece), MSG_NOSIGNAL) < 0 && errno != EINTR)
			// Whoever asks the sink lets that end first.
			return errno == EPIPE || errno == ECONNRESET ? 1 : failed("send");
	}
	struct tcp_info last = info(fd);
	printf("{\"value\":%.6f,\"detail\":{\"seconds\":%.3f,\"retransmitted\":%u,\"rtt_us\":%u}}\n",
		(double)(last.tcpi_bytes_acked - acked) * 8 / seconds / 1e9, seconds,
		last.tcpi_total_retrans, last.tcpi_rtt);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && strcmp(argv[1], "sink") == 0 && atoi(argv[3]) > 0 && atoi(argv[3]) <= MOST)
		return sink((uint16_t)atoi(argv[2]), atoi(argv[3]), atof(argv[4]), atof(argv[5]));
	if (argc == 6 && strcmp(argv[1], "source") == 0)
		return source(argv[2], (uint16_t)atoi(argv[3]), atof(argv[4]), atof(argv[5]));
	fprintf(stderr, "usage: stream sink PORT CONNECTIONS WARM SECONDS\n"
			"       stream source ADDRESS PORT WARM SECONDS\n");
	return 2;
}
