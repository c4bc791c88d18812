//! Where a machine's nodes and routers stand in a picture: a row for two, a square for four, a ring for more; nodes that share a socket's router, or of
//! whose links nothing is known, in blocks by socket; nodes without CPUs below the one that they hang on. Deterministic, and free of any drawing.

use numapilot_machine::{Endpoint, Machine, NodeId, RouterId, SocketId};

/// How large things are and how far apart.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Width of a node's card.
    pub card_width: f64,
    /// Height of a node's card.
    pub card_height: f64,
    /// Free space between cards that links cross.
    pub gap: f64,
}

/// More nodes of a socket, more sockets, or more nodes below others than this stand in about as many columns as rows.
const MANY: usize = 8;

/// A point: x to the right, y down.
pub type Point = (f64, f64);

/// Centres of all cards; the upper left corner of the bounding box is (0, 0).
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Centres of the node cards, in the order of [`Machine::nodes`].
    pub nodes: Vec<Point>,
    /// Centres of the routers, in the order of [`Machine::routers`].
    pub routers: Vec<Point>,
    /// Width of the box around all cards.
    pub width: f64,
    /// Height of the box around all cards.
    pub height: f64,
}

impl Layout {
    /// The centre of a link's end.
    pub fn of(&self, machine: &Machine, end: Endpoint) -> Option<Point> {
        match end {
            Endpoint::Node(node) => self.nodes.get(machine.node_index(node)?.0).copied(),
            Endpoint::Router(router) => self.routers.get(usize::from(router.0)).copied(),
        }
    }
}

/// Computes the positions of all nodes and routers.
pub fn layout(machine: &Machine, sizes: Sizes) -> Layout {
    let hangs = |index: usize| hangs_on(machine, index);
    let all: Vec<usize> = (0..machine.nodes().len()).collect();
    let (below, main): (Vec<usize>, Vec<usize>) = all.into_iter().partition(|&i| machine.nodes().len() > 1 && hangs(i));
    let main = if main.is_empty() { below.clone() } else { main };
    let mut places = vec![(0.0, 0.0); machine.nodes().len()];
    let mut routers = vec![None; machine.routers().len()];
    let blocks = !machine.routers().is_empty() || machine.links().is_empty();
    if blocks && main.len() > 2 {
        place_blocks(machine, &main, sizes, &mut places, &mut routers);
    } else {
        for (&node, point) in main.iter().zip(ring(machine, &main, sizes)) {
            places[node] = point;
        }
    }
    place_below(machine, &main, &below, sizes, &mut places);
    let routers = place_rest(machine, &places, routers, sizes);
    bounded(places, routers, sizes)
}

/// Whether a node has no CPUs and at most one neighbour.
fn hangs_on(machine: &Machine, index: usize) -> bool {
    let node = &machine.nodes()[index];
    let end = Endpoint::Node(node.id);
    let mut neighbours: Vec<Endpoint> = machine.links().iter().filter(|l| l.from == end).map(|l| l.to).collect();
    neighbours.dedup();
    !node.has_cpus() && neighbours.len() <= 1
}

/// One to four nodes in rows, more on an ellipse.
fn ring(machine: &Machine, nodes: &[usize], sizes: Sizes) -> Vec<Point> {
    let (dx, dy) = (sizes.card_width + sizes.gap, sizes.card_height + sizes.gap);
    let count = nodes.len();
    match count {
        0 => Vec::new(),
        1..=2 => (0..count).map(|i| (i as f64 * dx, 0.0)).collect(),
        3 => vec![(0.0, 0.0), (dx, 0.0), (dx / 2.0, dy)],
        4 => square(machine, nodes)
            .into_iter()
            .map(|corner| (f64::from(corner.0) * dx, f64::from(corner.1) * dy))
            .collect(),
        _ => {
            // Neighbours on the ellipse must not overlap where it is steepest (left and right) nor where it is flattest.
            let turn = std::f64::consts::TAU / count as f64;
            let rx = (dx * 1.05 / turn.sin()).max(dx);
            let ry = (dy * 1.05 / turn.sin()).max(dy);
            let start = -std::f64::consts::FRAC_PI_2 - turn / 2.0;
            let angle = |i: usize| start + turn * i as f64;
            (0..count).map(|i| (rx * angle(i).cos(), ry * angle(i).sin())).collect()
        }
    }
}

/// Which corner each of four nodes takes, so that as few links as can be run along the diagonals.
fn square(machine: &Machine, nodes: &[usize]) -> [(u8, u8); 4] {
    const CORNERS: [(u8, u8); 4] = [(0, 0), (1, 0), (0, 1), (1, 1)];
    const ORDERS: [[usize; 4]; 3] = [[0, 1, 2, 3], [0, 1, 3, 2], [0, 3, 1, 2]];
    let corner_of = |order: [usize; 4], id: NodeId| {
        let position = nodes.iter().position(|&n| machine.nodes()[n].id == id)?;
        Some(CORNERS[order[position]])
    };
    let diagonals = |order: [usize; 4]| {
        let ends = machine.links().iter().filter_map(|l| match (l.from, l.to) {
            (Endpoint::Node(a), Endpoint::Node(b)) => Some((corner_of(order, a)?, corner_of(order, b)?)),
            _ => None,
        });
        ends.filter(|(a, b)| a.0 != b.0 && a.1 != b.1).count()
    };
    let best = ORDERS.into_iter().min_by_key(|&order| diagonals(order)).unwrap_or(ORDERS[0]);
    best.map(|corner| CORNERS[corner])
}

/// The socket that a node is shown with: its own, or that of its router.
fn socket_of(machine: &Machine, node: usize) -> Option<SocketId> {
    machine.nodes()[node].socket
}

/// Blocks of two columns per socket, the socket's router in the middle of its block; blocks side by side, two per row.
fn place_blocks(machine: &Machine, main: &[usize], sizes: Sizes, places: &mut [Point], routers: &mut [Option<Point>]) {
    let (dx, dy) = (sizes.card_width + sizes.gap, sizes.card_height + sizes.gap);
    let mut sockets: Vec<Option<SocketId>> = main.iter().map(|&n| socket_of(machine, n)).collect();
    sockets.sort_unstable();
    sockets.dedup();
    let members = |socket: Option<SocketId>| {
        main.iter().copied().filter(|&n| socket_of(machine, n) == socket).collect::<Vec<_>>()
    };
    let largest = sockets.iter().map(|&s| members(s).len()).max().unwrap_or(1);
    let routed = !machine.routers().is_empty();
    // Two nodes of a socket stand one above the other, so that the way between sockets is short.
    let columns = match largest {
        0..=2 => 1,
        n if n > MANY && !routed => columns_of(n),
        _ => 2,
    };
    let rows = largest.div_ceil(columns);
    let per_row = match sockets.len() {
        3 => 3,
        n if n > MANY && !routed => columns_of(n),
        _ => 2,
    };
    for (position, &socket) in sockets.iter().enumerate() {
        let between = if routed && columns == 1 { 1.7 * sizes.gap } else { 0.6 * sizes.gap };
        let left = (position % per_row) as f64 * (columns as f64 * dx + between);
        let top = (position / per_row) as f64 * (rows as f64 * dy + 0.4 * sizes.gap);
        for (i, node) in members(socket).into_iter().enumerate() {
            places[node] = (left + (i % columns) as f64 * dx, top + (i / columns) as f64 * dy);
        }
        let middle = (left + (columns - 1) as f64 * dx / 2.0, top + (rows - 1) as f64 * dy / 2.0);
        let own = machine.routers().iter().position(|r| r.socket.is_some() && r.socket == socket);
        if let Some(router) = own {
            routers[router] = Some(middle);
        }
    }
}

/// The columns of a grid that is about as wide as it is high.
fn columns_of(count: usize) -> usize {
    (count as f64).sqrt().ceil() as usize
}

/// Nodes without CPUs: in a row below everything, each as near as can be to what it hangs on. Many of whose links nothing is known (accelerators
/// that are nodes of their own) take several rows.
fn place_below(machine: &Machine, main: &[usize], below: &[usize], sizes: Sizes, places: &mut [Point]) {
    let bottom = main.iter().map(|&n| places[n].1).fold(f64::NEG_INFINITY, f64::max);
    let left = main.iter().map(|&n| places[n].0).fold(f64::INFINITY, f64::min);
    let step = sizes.card_width + sizes.gap * 0.4;
    let mut taken = left - step;
    let host = |node: usize| {
        let end = Endpoint::Node(machine.nodes()[node].id);
        let link = machine.links().iter().find(|l| l.from == end)?;
        match link.to {
            Endpoint::Node(host) => machine.node_index(host).map(|h| h.0).filter(|h| !below.contains(h)),
            Endpoint::Router(_) => None,
        }
    };
    let mut order: Vec<(f64, usize)> =
        below.iter().filter(|n| !main.contains(n)).map(|&n| (host(n).map_or(left, |h| places[h].0), n)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    if order.len() > MANY && machine.links().is_empty() {
        let columns = columns_of(order.len());
        for (position, (_, node)) in order.into_iter().enumerate() {
            let row = (1 + position / columns) as f64;
            places[node] =
                (left + (position % columns) as f64 * step, row.mul_add(sizes.card_height + sizes.gap, bottom));
        }
        return;
    }
    for (wanted, node) in order {
        let x = wanted.max(taken + step);
        places[node] = (x, bottom + sizes.card_height + sizes.gap);
        taken = x;
    }
}

/// Routers that belong to no block: in the middle of the nodes that they join, moved apart if they fall together.
fn place_rest(machine: &Machine, nodes: &[Point], routers: Vec<Option<Point>>, sizes: Sizes) -> Vec<Point> {
    let mut placed: Vec<Point> = routers.iter().flatten().copied().collect();
    let mut all = Vec::with_capacity(routers.len());
    for (index, known) in routers.into_iter().enumerate() {
        let point = known.unwrap_or_else(|| {
            let end = Endpoint::Router(RouterId(index as u16));
            let near = machine.links().iter().filter(|l| l.from == end).filter_map(|l| match l.to {
                Endpoint::Node(node) => machine.node_index(node).map(|i| nodes[i]),
                Endpoint::Router(_) => None,
            });
            let near: Vec<Point> = near.collect();
            let around = if near.is_empty() { nodes } else { &near };
            let count = around.len().max(1) as f64;
            let mut point =
                (around.iter().map(|p| p.0).sum::<f64>() / count, around.iter().map(|p| p.1).sum::<f64>() / count);
            while placed.iter().any(|p| (p.0 - point.0).abs() < 1.0 && (p.1 - point.1).abs() < sizes.gap * 0.5) {
                point.1 += sizes.gap * 0.5;
            }
            placed.push(point);
            point
        });
        all.push(point);
    }
    all
}

/// Moves everything so that the box around the cards begins at (0, 0).
fn bounded(mut nodes: Vec<Point>, mut routers: Vec<Point>, sizes: Sizes) -> Layout {
    let (half_width, half_height) = (sizes.card_width / 2.0, sizes.card_height / 2.0);
    let all = || nodes.iter().chain(&routers);
    let left = all().map(|p| p.0).fold(f64::INFINITY, f64::min) - half_width;
    let top = all().map(|p| p.1).fold(f64::INFINITY, f64::min) - half_height;
    let right = all().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max) + half_width;
    let bottom = all().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max) + half_height;
    for point in nodes.iter_mut().chain(&mut routers) {
        *point = (point.0 - left, point.1 - top);
    }
    Layout { nodes, routers, width: right - left, height: bottom - top }
}
