//! Frames one by one, as captures have them, against what running workers do with them.

use super::*;
use crate::dispatch::frame::dispatched;

/// Queries, connections and datagrams from inside, and ICMP errors about them from outside.
#[test]
fn a_frame_goes_to_the_worker_that_its_bucket_says() {
    each(|plant, owners| {
        let first = plant.workers.len() - owners;
        let path = plant.workers[0].stage.path::<GatewayPath>().unwrap();
        let (classes, dealt) = (path.flows().classes().clone(), Owners::dealt(owners));
        let goes_to = |frame: &[u8]| {
            let dispatched = dispatched(&classes, frame).unwrap();
            first + usize::from(dealt.of(dispatched.bucket))
        };
        let (mut all, mut flows) = (BTreeSet::new(), BTreeSet::new());
        for protocol in [protocol::UDP, protocol::TCP, protocol::ICMP] {
            for asks in hosts(protocol) {
                let frame = match protocol {
                    protocol::UDP => datagram(&asks, INSIDE),
                    protocol::TCP => segment(&asks, INSIDE, SYN, (100, 0)),
                    _ => echo(&asks, INSIDE, 8, asks.src.port),
                };
                let frame = frame.bytes();
                let sent = the_one(
                    plant.exchange(INSIDE, std::slice::from_ref(&frame)),
                    OUTSIDE,
                );
                assert_eq!(goes_to(&frame), sent.worker, "{asks}");
                all.insert(sent.worker);
                flows.insert(dispatched(&classes, &frame).unwrap().key);
                let mut payload = vec![3, 1, 0, 0, 0, 0, 0, 0];
                payload.extend(&sent.frame[14..14 + 28]);
                let sum = !linerate_wire::checksum::sum(&payload);
                payload[2..4].copy_from_slice(&sum.to_be_bytes());
                let tuple = Tuple {
                    src: Endpoint::new([192, 0, 2, 1], 0),
                    dst: ends(&sent.frame).src,
                    protocol: protocol::ICMP,
                };
                let error = super::frame(&tuple, OUTSIDE, payload).bytes();
                assert_eq!(goes_to(&error), sent.worker, "an error about {asks}");
            }
        }
        assert_eq!((all.len(), flows.len()), (owners, 180));
        let mut group = datagram(&hosts(protocol::UDP).next().unwrap(), INSIDE);
        group.dst = "224.0.0.1";
        assert_eq!(dispatched(&classes, &group.bytes()), None);
        assert_eq!(dispatched(&classes, &[0; 60]), None);
    });
}
