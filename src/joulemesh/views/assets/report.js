// Draws everything.

const hasSeries = Object.keys(data.series).length > 0;
const shared = { names: data.names, kinds: data.kinds };

function draw() {
  tip.hide();
  if (hasSeries) drawLearning();
  if (data.map) deviceMap("map", data.map, shared);
  roundsMap("rounds", data.rounds, shared);
  if (data.battery) batteryChart("batteries", data.battery, shared);
  if (data.harvest) harvestChart("harvest", data.harvest);
  if (data.gantt.length) drawIteration();
  if (data.flow) flowChart("flow", data.flow);
  if (data.labels) labelChart("labels", data.labels, shared);
}

if (hasSeries) learningSwitches();
page(draw, ".shield, svg.map, #learning svg, #harvest svg");
