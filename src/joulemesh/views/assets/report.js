// Draws the page of a run or of a comparison: those of the charts of which there is data.

const shared = { names: data.names, kinds: data.kinds };

page(() => {
  tip.hide();
  if (data.learning) curves(data.methods ? "curves" : "learning", data.learning);
  if (data.map) deviceMap("map", data.map, shared);
  if (data.rounds) roundsMap("rounds", data.rounds, shared);
  if (data.battery) batteryChart("batteries", data.battery, shared);
  if (data.harvest) harvestChart("harvest", data.harvest);
  if (data.gantt?.length) drawIteration();
  if (data.flow) flowChart("flow", data.flow, data.methods ? { from: "methods", apart: true } : {});
  if (data.labels) labelChart("labels", data.labels, shared);
}, ".shield, svg.map, #learning svg, #curves svg, #harvest svg");
