// The matrix of zones, by the figures of a judge, and the nodes of one of its cells, whose agents
// are asked.

// Nodes of a zone that are drawn, and reports that are asked for at a time.
const PART_MAX = 100;
// Characters of such a request.
const PATH_MAX = 6000;
// Reports of a matrix of all nodes.
const REPORTS_MAX = 300;

// The pair of zones whose nodes are shown, as in the subject of a verdict.
const pairShown = () => (isLarge() ? shown.pair : '');
const isCollected = () => mesh.at && mesh.part.pair === pairShown();
// The names of a zone's nodes, those with most loss first.
const worstOf = (zone, way) => mesh.all.rows.filter((row) => row.zone === zone)
  .sort((a, b) => share(b[way]) - share(a[way])).map((row) => row.node);

// The nodes of the mesh: those that a judge lists, or else this agent and those that it probes.
async function nodeNames() {
  if (isLarge() && mesh.all.rows.length) return mesh.all.rows.map((row) => row.node);
  const { source, peers } = await (await ask('peers')).json();
  return [...new Set([source, ...peers].map((of) => of.node))];
}

// Asks again when the agent permits it, 40 times in all.
async function askPatiently(path) {
  for (let tries = 40; ; tries--) {
    try {
      return await ask(path);
    } catch (error) {
      if (!error.after || tries < 2) throw error;
      await new Promise((done) => setTimeout(done, error.after * 1e3));
    }
  }
}

// The reports of these nodes. This many are asked for at a time as one request has room for.
async function reportsOf(names) {
  const rows = [], missing = [];
  for (let at = 0; at < names.length;) {
    let path = 'mesh/' + encodeURIComponent(names[at]), room = PART_MAX;
    while (++at < names.length && --room && path.length < PATH_MAX) path += ',' + encodeURIComponent(names[at]);
    const read = readMesh(await (await (rows.length ? askPatiently : ask)(path)).text());
    rows.push(...read.rows);
    missing.push(...read.missing);
  }
  return { rows, missing };
}

async function collect() {
  const pair = pairShown(), [from, to] = pair.split('->'), sources = pair ? worstOf(from, 'out') : await nodeNames();
  const rows = sources.slice(0, pair ? PART_MAX : REPORTS_MAX), left = pair ? 0 : sources.length - rows.length + mesh.said.not_gathered;
  settle({ ...await reportsOf(rows), left });
  const peers = worstOf(to, 'in').filter((name) => mesh.nodes.has(name)), columns = peers.slice(0, PART_MAX);
  const note = pair && `${pair.replace('->', ' → ')}: ${rows.length} of ${count(sources.length, 'source')}, ${columns.length} of the ${count(peers.length, 'peer')} they probe there; those with most loss.`;
  mesh.part = { pair, rows, columns, note };
}

function showZones() {
  const { zone_pairs: pairs } = mesh.all, zones = [...new Set(pairs.flatMap((of) => [of.source_zone, of.peer_zone]))].sort(inOrder);
  const cell = (from, to) => {
    const of = pairs.find((one) => one.source_zone === from && one.peer_zone === to), pair = `${from}->${to}`, is = pair === shown.pair;
    if (!of) return '-';
    const onclick = () => {
      keep({ pair: is ? '' : pair });
      showTables();
      if (!is) turn(true);
    };
    const made = make('button', { onclick, ariaPressed: is, title: `${number(of.losing_links)} of ${count(of.links, 'link')} with loss` }, lost(of), ` ${seconds(of.rtt_p50_seconds)}`);
    made.style.borderColor = `var(--loss${LOSS.findIndex((bound) => share(of) <= bound)})`;
    return made;
  };
  $('zones-box').hidden = shown.matrix !== 'zones';
  put('zones-note', isCollected() && mesh.part.note || 'Loss and median RTT. A press on a cell asks the agents of its nodes.');
  table($('zones'), '', [['from ↓ to →', (zone) => zone], ...zones.map((to) => [to, (from) => cell(from, to)])], zones);
}
