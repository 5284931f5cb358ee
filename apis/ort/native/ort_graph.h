/* onnxruntime's graph as bytes for the simulator's process; apis/ort/graph.py reads them. */
#ifndef ORT_GRAPH_H
#define ORT_GRAPH_H

#include "ort.h"
#include "rk_writer.h"

/* Write a graph: its nodes with types and attributes, and its constants.  Return NULL or a status. */
struct ort_status *ort_put_graph(const struct ort_api *api, const struct ort_graph *graph, struct out *o);
/* Write what tells a fused part: the values that its nodes, and the fused node, take and give. */
struct ort_status *ort_put_part(const struct ort_api *api, const struct ort_graph *graph,
                                const struct ort_node *fused, struct out *o);

#endif
